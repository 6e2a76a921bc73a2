"""The main job, end to end: what `bradbury demo` runs.

demo_command, run          the command; its six steps in order, and the cleanup
screen, charts             terminal output; bar charts in the terminal and as a picture
flights                    flights from New York City in 2013, as records
log_steps                  steps 2 and 3: Ray tasks produce, consumer actors read back
dataset_steps, spark_etl   steps 4 and 5: as a Ray Dataset; a flow on Spark
delivery_check             check that every row is read exactly once, in order per key (pure)
"""
