"""Topics as Ray Datasets.

ray_data_missing   what is said where the extra [data] is missing
read_topic         bradbury.read_topic: a Dataset of the records between two offsets
topic_datasource   the plan: which task reads which ranges; what one task does
range_predicate    what a filter says about ranges
write_topic        bradbury.write_topic: the rows of a Dataset as records
topic_datasink     what one task of a write does, and how it is done once
"""
