"""Record batches, on the wire and in the log.

record_batch                  header and checks of magic 2
record_walk, records          from batch to batch; single records
end_transaction_marker        the record of a control batch that ends a transaction
old_batches, legacy_messages  message sets of magic 0 and 1
compression, lz4_header       codecs
fetch_response                a Fetch answer, batches and all
"""
