"""Migration of a cluster's topics, records and groups to another cluster, and back if needed.

migration                public interface: follow, status, verify, cut_over
migration_session        a mirror with unchanged topic names, and its direction
migration_notes          notes kept in the target cluster, and how the direction is reversed
cut_over                 the switch of producers and consumers to the target
exact_offsets            the exact offset of a record in the target
moved_groups             exact offsets of groups
verification, verifier   comparison of both sides, whose results are remembered
record_checksums         record counts and checksums, by column
migration_status         progress, read without changing anything
"""
