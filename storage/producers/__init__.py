"""Last writes of the idempotent producers of a partition.

producer_state       recognises their retries; their open transactions
verification_guard   the question to a transaction's coordinator that is under way
producer_snapshot    the state at an offset, in a file
healed_producers     whether what was remembered agrees with records that are there again
producer_recovery    the newest good snapshot, then the batches after it
"""
