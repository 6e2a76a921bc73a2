"""Client quotas: described and changed by Admin.

quotas_admin   entities, filters, the two requests
quotas_calls   methods of Admin
"""
