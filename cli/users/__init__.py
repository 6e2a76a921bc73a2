"""The `bradbury users` commands."""
