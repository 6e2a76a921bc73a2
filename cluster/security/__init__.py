"""Who may connect and what he may do: settings of listeners and the rules. Pure."""
