"""APIs about authentication and authorization: SASL, users, delegation tokens, ACLs.

sasl_handshake, sasl_authenticate         the mechanism; its tokens
sasl_authentication, raw_sasl_token       how far it has proved who it is; tokens without headers
create_acls, delete_acls, describe_acls   ACLs
create_delegation_token                   a delegation token: it is made,
renew_delegation_token                    is good for longer,
expire_delegation_token                   is over,
describe_delegation_token                 is shown to those who may see it
token_requests                            what these four share
alter_user_scram_credentials              users' credentials are added, replaced, removed
describe_user_scram_credentials           which users have which
"""
