"""Who somebody is, and may do what, as far as a node has to do something for it.

node_authorizer   rules taken over from the metadata, decisions written down
jwks_reader       the key set of an OAuth issuer, from a file or a URL
"""
