"""APIs about topics: Metadata, CreateTopics, DeleteTopics, CreatePartitions."""
