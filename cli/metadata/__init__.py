"""`bradbury metadata`: the metadata log of a cluster that does not run.

metadata_command   `metadata recover`: a damaged or lost log made again, without a broker
"""
