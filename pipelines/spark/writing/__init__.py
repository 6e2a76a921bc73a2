"""Writing with Spark: rows of a task to a topic, at least once or in transactions."""
