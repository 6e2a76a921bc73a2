"""Commands about consumer groups: groups list, describe, lag, reset, export, import."""
