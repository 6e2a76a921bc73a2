"""Code in Spark's tasks: objects kept between them, rows, failures.

worker, spark_task   clients kept by a worker; the current task
sink_batch           batches of a sink, and their markers
handover             a transactional id goes from one worker to the next
arrow                records as the rows that Spark takes
spark_failure        errors of sessions and queries, in one line
"""
