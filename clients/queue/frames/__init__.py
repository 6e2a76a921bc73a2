"""Frames between processes and the actor of a queue.

queue_frames   frames: requests, answers, items, pieces of records
item_codec     items <-> the value of a record
"""
