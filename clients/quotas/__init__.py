"""What clients may use: quotas asked and changed from outside.

quotas_admin   entities, filters, the two requests
quotas_calls   what Admin has of them
"""
