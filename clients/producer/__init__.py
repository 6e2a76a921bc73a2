"""The producer: records in, futures out.

producer, async_producer   the classes Producer and AsyncProducer
producer_settings          which settings are allowed together
batches/                   encoding of records to batches; their outcomes
sender, produce_request    sending of batches to leaders, in order, once
lingering_runs             records that wait for more of their topic
completed_batches          ends of batches: appended, failed, given up
producer_end               delivery for producers that are not closed
transactions/              begin, commit, abort; requests to the coordinator
"""
