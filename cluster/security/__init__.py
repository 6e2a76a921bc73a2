"""Who may connect, who somebody is and what he may do: settings of listeners, and the rules. Pure.

sasl/   the broker's side of SASL mechanisms
"""
