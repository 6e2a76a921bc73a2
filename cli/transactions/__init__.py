"""Commands about transactions: list, describe, producers, find-hanging, abort, fence."""
