"""Floor 1: replicas and the controller's metadata. Pure rules."""
