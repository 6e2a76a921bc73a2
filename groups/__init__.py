"""Floor 1: consumer groups. Pure rules: events and time in, effects out."""
