"""Mirrors of one cluster's topics in another cluster, once or continuously.

mirror, mirror_settings         the function `bradbury.mirror`; its validated settings
background_mirror               mirrors in threads, of several clusters
mirror_session                  connections of a mirror, and its loop
actor_session, mirror_worker    session whose Ray actors copy; one such actor
worker_layout                   set of workers, and proof that no former ones are left
record_copier                   copier of new records, committed together with the positions
source_ranges                   ranges of the source that are to be copied
record_tail                     fetch that waits at the source for records at its end
followed_topics                 matching topics, also new ones, without cycles
own_records                     records of a left-out topic that would never be copied
mirrored_topics                 names of topics in the target; creates and grows them there, and
                                keeps their configs as in the source
mirror_checkpoints, offset_syncs   consumer groups' offsets; how they are translated
mirror_positions                positions of a mirror, in a topic of the target
"""
