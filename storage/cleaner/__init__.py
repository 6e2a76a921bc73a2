"""Compaction: keeps the last record of each key.

cleaner                                cleans one log
cleaner_filter, cleaner_transactions   what stays of a batch
cleaner_loops                          chooses between the twins:
cleaner_plain, cleaner_rows            plain Python, and what both are given
cleaner_compiled, cleaner_kernels      numba
cleaner_config                         its settings
"""
