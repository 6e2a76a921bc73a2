"""Commands about the log: dump, verify, index-check, and replay of a topic."""
