"""Topics as Ray Datasets.

ray_data_missing    the error raised if the extra [data] is missing
read_topic          bradbury.read_topic: a Dataset of the records between two offsets
topic_datasource    the plan: which task reads which ranges; what one task does
task_placement      placement of tasks on the Ray node whose files they read
range_predicate     narrowing of ranges by filters
write_topic         bradbury.write_topic: the rows of a Dataset as records
topic_datasink      what one task of a write does, exactly once

Without an end, trigger="continuous":

unread_ranges       ranges not handed out yet, in pieces (pure)
topic_follower      looks up log end offsets when a piece is wanted
continuous_read     the operator of Ray Data that hands pieces out as tasks
row_positions       output rows -> offsets to commit (pure)
continuous_output   write_topic and committed_batches for such a Dataset
committed_batches   bradbury.committed_batches: yields batches, then commits them
"""
