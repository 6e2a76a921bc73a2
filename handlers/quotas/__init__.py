"""Quotas of clients: their APIs, and how an answer says that its client has to wait."""
