"""Floor 1: transactions. Pure rules: requests and time in, effects out.

transaction_state      the states of a transactional id and the ways between them
transaction_metadata   what is known of a transactional id; each transition of it
transaction_records    the records of `__transaction_state`
"""
