"""Commands about rules of access: acls list, add, remove.

acls_command   the commands
acl_options    the words of kafka-acls.sh as rules and filters
"""
