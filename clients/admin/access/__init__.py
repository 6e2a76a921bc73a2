"""ACLs and delegation tokens in Admin: its methods, and the requests to brokers.

acls_admin, acls_calls       ACLs; their methods of Admin
tokens_admin, tokens_calls   delegation tokens; their methods of Admin
"""
