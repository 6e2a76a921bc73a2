"""Common parts of the steps of replication/, controller/ and groups/: docs/design/steps.md.

replies   effects that end a request: its answer, or why there is none
"""
