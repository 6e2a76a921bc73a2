"""Quotas of clients: their APIs, and the throttling of responses.

alter_client_quotas      quotas are set and removed
describe_client_quotas   which quotas are set
throttling               an answer that asks its client to wait, and the connection that is held
"""
