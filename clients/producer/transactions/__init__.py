"""Transactions of a producer: its id and epoch, what it asks the coordinator, the calls of users.

transaction_manager                         state, and which question comes next
transaction_request, transaction_messages   one question; its form on the wire
transaction_calls                           begin, commit and abort, as users call them
producer_transactions                       the requests, sent one after another
transaction_errors                          which errors end what
"""
