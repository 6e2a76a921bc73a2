"""The Admin client: describes and changes topics, configs, groups, replicas and more.

admin, admin_parts                            the class Admin; how parts' methods are its own
topics_admin, configs                         topics; settings
records_admin, log_dirs                       DeleteRecords; DescribeLogDirs
group_admin, group_offsets_admin, group_lag   groups, their committed offsets, their lag
replicas_admin                                replicas, reassignments and leader elections
transactions_admin, transactions_calls        transactions; their methods of Admin
users_admin                                   SCRAM credentials, and their methods of Admin
access/                                       ACLs, delegation tokens
every_coordinator                             a request to the coordinators of every node
record_times, replay                          timestamps by offset; copying a topic into another
"""
