"""APIs about records: Produce, Fetch, ListOffsets, OffsetForLeaderEpoch, DeleteRecords.

produce, verified_appends                one batch per partition; those of transactions (KIP-890)
produce_response                         the most frequent answer, written by hand
fetch, fetch_reading                     slices of the log; what one pass over the partitions finds
pending_fetch                            a long poll from request to answer, step by step
delayed_fetch, poll_timers               its driver, which waits; when it is over
throttled_fetch, fetch_down_conversion   beyond a quota; for consumers before Kafka 0.11
list_offsets, offset_for_leader_epoch    the offset at a time; where a leader epoch ended
delete_records                           records below an offset
describe_producers, write_txn_markers    producers in a partition; the end of their transactions
"""
