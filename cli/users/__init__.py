"""Commands about users: users, delegation-tokens.

users_command               SCRAM users
delegation_tokens_command   delegation tokens: temporary credentials
"""
