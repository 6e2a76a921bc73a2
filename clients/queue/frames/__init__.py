"""What processes and the actor of a queue say to one another.

queue_frames   frames: requests, answers, items, pieces of records
item_codec     items <-> the value of a record
"""
