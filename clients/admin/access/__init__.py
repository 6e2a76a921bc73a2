"""What Admin has of rules of access, and how brokers are asked for it.

acls_admin, acls_calls       rules of access; what Admin has of them
tokens_admin, tokens_calls   delegation tokens; what Admin has of them
"""
