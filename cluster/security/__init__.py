"""Who somebody is, and may do what. Pure rules.

sasl/   the broker's side of SASL mechanisms
"""
