"""Who may do what: rules of access, and what they decide.

authorizer    decides about one operation on one resource
acl_index     finds the rules that are about a resource
"""
