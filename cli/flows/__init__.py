"""`bradbury flow`: flows of topics through steps into topics and tables.

flow_command   `bradbury flow run FLOW.yaml`: a flow, and how far it is
"""
