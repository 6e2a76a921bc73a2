"""Topics, configs, groups and replicas, asked and changed from outside.

admin                                         what users call
topics_admin, configs                         topics; settings
records_admin, log_dirs                       DeleteRecords; which disks hold which partitions
group_admin, group_offsets_admin, group_lag   groups, their offsets, how far they are behind
replicas_admin                                where replicas lie and who leads
transactions_admin, transactions_calls        transactions; what Admin has of them
users_admin, users_calls                      users' credentials; what Admin has of them
access/                                       rules of access, delegation tokens
every_coordinator                             one question to the coordinators of every node
record_times, replay                          when a record was written; a topic into another
"""
