"""Commands about transactions: list, describe, producers, find-hanging, abort, fence.

transactions_command   the commands, as kafka-transactions.sh has them
"""
