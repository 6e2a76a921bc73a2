"""Commands about topics and their records: topics, produce, consume, offsets."""
