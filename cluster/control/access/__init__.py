"""Requests about who may do what.

acl_control     rules of access
scram_control   users' credentials
token_control   delegation tokens
"""
