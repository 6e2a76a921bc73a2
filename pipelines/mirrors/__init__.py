"""Mirrors of one cluster's topics in another cluster, once or continuously.

mirror, mirror_settings         public function; its settings
background_mirror               mirrors of several clusters, each in a thread
mirror_session                  connections and main loop of a mirror
actor_session, mirror_worker    a session whose Ray actors copy; one of the actors
worker_layout                   which workers exist; fences former ones
record_copier                   copies new records and commits them with the positions
record_tail                     fetches new records with long polls at the source
followed_topics                 topics that match, discovered as they appear, without cycles
mirrored_topics                 topic filters and names; creation of topics and partitions
mirrored_groups, offset_syncs   consumer groups' offsets; their translation
mirror_positions                positions of a mirror, in a topic of the target
"""
