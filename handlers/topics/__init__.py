"""APIs about topics: Metadata, CreateTopics, DeleteTopics, CreatePartitions.

metadata, describe_topic_partitions   nodes, topics, leaders; topics, a page at a time
create_topics, delete_topics          how topics come and go
create_partitions                     how they grow
metered_change                        these, counted against a client's quota
internal_topic                        the topics of coordinators, created when first needed
"""
