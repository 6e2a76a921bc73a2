"""Topics for training loops.

topic_dataset        bradbury.TopicDataset: an iterable dataset for PyTorch whose state is offsets
shards               which records a rank and worker reads (pure)
row_marks            rows of a chunk -> the position of each (pure)
columns_of_batches   tables -> arrays of NumPy
"""
