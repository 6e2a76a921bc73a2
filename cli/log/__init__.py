"""Commands about the log: dump, verify, index-check, quarantine, and replay of a topic.

log_command                                the commands
log_files                                  segments, batches and indexes, read without a broker
log_dump                                   `dump`: prints batches, records and index entries
log_verify                                 `verify`: checks batches and records of whole logs
log_index_check, transaction_index_check   `index-check`: compares indexes with their logs
log_quarantine                             `quarantine`: takes unreadable batches out of logs
log_replay                                 `replay`: copies records of a topic into another topic
"""
