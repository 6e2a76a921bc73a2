"""Writing with Spark: rows of a task to a topic, at least once or in transactions.

sink                 DataFrame rows to topics, as columns
row_sender           rows of a task to a producer, by topic
transactional_sink   all rows of a task's batch in one transaction: exactly once
"""
