"""Transactions of a producer: its id and epoch, what it asks the coordinator, the calls of users.

transaction_manager                         state, and which question comes next
partitions_in_transaction                   where batches may go, or will be allowed to
pending_offset_commits                      offsets that are to join it
transaction_completion                      how it ends: EndTxn, a new epoch, or both
pending_operation                           the call that has not been seen to its end
transaction_request, transaction_messages   one question; its form on the wire
transaction_calls                           begin, commit and abort, as users call them
producer_transactions                       the requests, sent one after another
transaction_errors                          which errors end what, and what they say
"""
