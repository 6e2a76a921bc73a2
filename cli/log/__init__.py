"""Commands about the log: dump, verify, index-check, quarantine, and replay of a topic.

log_command                                the commands
log_files                                  segments, batches and indexes, read without a broker
log_dump                                   what is in the files
log_verify                                 whether every byte is what a broker may have written
log_index_check, transaction_index_check   every entry of the indexes against the log
log_quarantine                             what no consumer can read, taken out of the logs
log_replay                                 the records of a topic, produced again into another one
"""
