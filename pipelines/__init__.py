"""Bridges on top of the clients: Spark (RayDP), Ray Data, training loops.

ranges              reading what a task is given, which they share
spark               DataFrames and streams; pyspark_bradbury is what Spark's workers import
ray_data            read_topic and write_topic
training            TopicDataset, for PyTorch
"""
