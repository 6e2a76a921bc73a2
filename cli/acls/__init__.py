"""Commands about ACLs: acls list, add, remove.

acls_command   the commands
acl_options    the options of kafka-acls.sh, turned into ACL bindings and filters
"""
