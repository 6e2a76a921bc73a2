"""Topics as Ray Datasets.

ray_data_missing    what is said where the extra [data] is missing
read_topic          bradbury.read_topic: a Dataset of the records between two offsets
topic_datasource    the plan: which task reads which ranges; what one task does
task_placement      on which Ray node a task runs, where it reads files
range_predicate     what a filter says about ranges
write_topic         bradbury.write_topic: the rows of a Dataset as records
topic_datasink      what one task of a write does, and how it is done once

Without an end, trigger="continuous":

unread_ranges       what of the logs has not been handed out, a piece at a time (pure)
topic_follower      asks how far the logs reach, when a piece is wanted
continuous_read     the operator of Ray Data that hands pieces out as tasks
row_positions       the rows that have come out -> offsets to commit (pure)
continuous_output   what write_topic and committed_batches do with such a Dataset
committed_batches   bradbury.committed_batches: its batches, and then their offsets
"""
