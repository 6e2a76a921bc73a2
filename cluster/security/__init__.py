"""Who may connect, who somebody is and what he may do: settings of listeners, and the rules. Pure.

sasl/         the broker's side of SASL mechanisms
authorizer    decides about one operation on one resource
acl_index     finds the rules that are about a resource
"""
