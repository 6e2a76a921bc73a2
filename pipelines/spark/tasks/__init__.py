"""In the tasks of Spark: what a Python worker keeps between them, rows, failures.

worker, spark_task   clients of a worker, from task to task; which attempt this is
sink_batch           what a writing task hands back to the driver
arrow                records as the rows that Spark takes
spark_failure        what a session or a query fails with, in one line
"""
