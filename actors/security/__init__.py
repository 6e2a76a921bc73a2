"""Security of one node: its authorizer, and the keys of an OAuth issuer.

node_authorizer   rules taken over from the metadata, decisions written down
jwks_reader       the key set of an OAuth issuer, from a file or a URL
"""
