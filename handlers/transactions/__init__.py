"""APIs about transactions: InitProducerId, AddPartitionsToTxn, EndTxn and their kin.

init_producer_id                            who a producer is from now on
add_partitions_to_txn, add_offsets_to_txn   partitions, and a group's offsets, join a transaction
end_txn                                     commit or abort
describe_transactions, list_transactions    what coordinators know
linear_pattern                              regular expressions of clients, matched in linear time
transactional_request                       what these handlers share
transactions_topic                          `__transaction_state` as it is made
"""
