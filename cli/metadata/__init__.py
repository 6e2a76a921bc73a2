"""The command `bradbury metadata`: the metadata log of a cluster that does not run.

metadata_command   `metadata recover`: rebuilds a damaged or lost log, without a broker
"""
