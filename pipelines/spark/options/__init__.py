"""What a user may ask the Spark data source for, checked; all the names there are.

option_table    the names of all options, and Kafka's own settings behind `kafka.`
spark_options   their values, typed and checked
"""
