"""Commands about users: users, delegation-tokens.

users_command               who may log in with SCRAM
delegation_tokens_command   secrets to log in with for a time
"""
