"""Options of the Spark data source: names and validation.

option_table    the names of all options, and Kafka's own settings with the prefix `kafka.`
spark_options   their values, typed and checked
"""
