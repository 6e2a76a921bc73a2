"""Segments: files of record batches with sparse indexes next to them.

log_segment, segment_list              one; those of a log, in order
frozen_segment                         one as it was at a moment, for another thread
segment_files                          names of its files, the open log
closed_segments, lost_segments         which ones a log has closed; those whose log file is gone
batch_scan, segment_runs               the walk over the batches of a file; what of it is sound
offset_index, time_index, index_file   from an offset or a time to a place; what they share
transaction_index                      the aborted transactions of one segment
"""
