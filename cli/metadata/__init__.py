"""The `bradbury metadata` command."""
