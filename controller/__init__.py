"""The metadata's log and its controller as step objects; see docs/design/steps.md.

voter_requests, controller_calls   what a voter and the controller can be asked, each once
effects                            what the steps ask of their drivers
metadata_voter                     one voter: its promise and its copy of the log
voter_directory, replicated_log    its files
"""
