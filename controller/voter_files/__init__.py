"""Files of a voter: its vote, its copy of the metadata log, and their repair when damaged.

voter_directory, replicated_log          the directory, and the log with its snapshot
quorum_state_file, acknowledged_offset   the vote; how far the voter has answered that it is
metadata_log_check                       what in a log is sound
voter_condition                          all of a directory, read before it is changed: is it fit?
metadata_copies                          what the copies of several voters have together
metadata_rebuild                         a lost log made again, without a broker
"""
