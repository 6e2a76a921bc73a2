"""Requests about access: ACLs, SCRAM credentials and delegation tokens.

access_request   what all of them have in common
acl_control      ACLs
scram_control    users' credentials
token_control    delegation tokens
"""
