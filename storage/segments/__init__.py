"""Segments: files of record batches with sparse indexes next to them.

log_segment, segment_list, frozen_segment                       one, those of a log, one as it was
segment_files                                                   names of its files, the open log
batch_scan                                                      the walk over the batches of a file
offset_index, time_index, transaction_index, index_file         from an offset or a time to a place
"""
