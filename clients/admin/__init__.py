"""Topics, configs, groups and replicas, asked and changed from outside.

admin                                              what users call
topics_admin, configs, records_admin, log_dirs     topics and their data
group_admin, group_offsets_admin, group_lag        groups
replicas_admin                                     where replicas lie and who leads
users_calls, users_admin                           users' credentials
record_times, replay                               what the command line adds
"""
