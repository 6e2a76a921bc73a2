"""A cluster's topics, records and groups moved into another one, and back if need be.

migration                what is called: follow, status, verify, cut_over
migration_session        a mirror under the topics' own names, which knows which way it goes
migration_notes          what a migration remembers in the target, and how it turns around
cut_over                 the moment from which the target counts
exact_offsets            where exactly a record is in the target
moved_groups             groups' offsets, exact
verification, verifier   are both sides the same; what was found so is remembered
record_checksums         records counted and summed, by columns
migration_status         how far it is, seen from outside
"""
