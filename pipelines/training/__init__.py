"""Readers of topics for training loops.

topic_dataset        bradbury.TopicDataset: an iterable dataset for PyTorch whose state is offsets
shards               records that each rank and worker reads (pure)
row_marks            positions of the rows of a chunk (pure)
columns_of_batches   tables -> arrays of NumPy
"""
