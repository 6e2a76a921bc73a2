"""Security of one node: its authorizer, who its clients are, and the keys of an OAuth issuer.

node_authorizer    rules taken over from the metadata, decisions written down
sasl_credentials   the users of one listener
secret_files       secrets that settings name
jwks_reader        the key set of an OAuth issuer, from a file or a URL
"""
