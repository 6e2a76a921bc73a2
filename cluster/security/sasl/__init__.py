"""Server side of SASL: an exchange for each mechanism.

sasl_server                         what every mechanism is: token in, reply out
mechanisms, credentials             which there are; what they know of users
plain, scram_server, oauth_bearer   the mechanisms
delegation_token                    tokens that brokers give, and what SCRAM makes of them
json_web_token                      tokens of OAUTHBEARER, and the keys they are signed with
"""
