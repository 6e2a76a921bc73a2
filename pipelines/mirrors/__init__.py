"""Mirrors of one cluster's topics in another cluster, once or continuously.

mirror, mirror_settings         what is called; what it is asked to do
background_mirror               the same in threads, of several clusters
mirror_session                  its connections, and the loop
actor_session, mirror_worker    the same with Ray actors, which copy; one of them
worker_layout                   which workers there are, and that no former ones are left
record_copier                   what is new, copied and committed with how far it is
record_tail                     what comes behind it, by a fetch that waits at the source
followed_topics                 topics that match, taken in as they come, without cycles
own_records                     of a topic that is left out, what would never cross
mirrored_topics                 which topics, under which names; made and grown in the target
mirrored_groups, offset_syncs   consumer groups' offsets; by what they are translated
mirror_positions                how far a mirror is, in a topic of the target
"""
