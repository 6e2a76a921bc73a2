"""Topic -> view -> topic. spark-pipelines imports this file; it is not run by itself."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession, functions as f

spark = SparkSession.active()

dp.create_sink("late_topic", "bradbury", {"topic": "late-flights"})


@dp.temporary_view
def flights() -> DataFrame:
    topic = spark.readStream.format("bradbury").option("subscribe", "flights")
    rows = topic.option("startingOffsets", "earliest").load()
    flight = f.from_json(rows["value"].cast("string"), "tail string, delay int")
    return rows.select("key", flight.alias("flight")).select("key", "flight.*")


@dp.append_flow(target="late_topic")
def late_flights() -> DataFrame:
    late = spark.readStream.table("flights").where("delay > 15")
    return late.select("key", f.to_json(f.struct("tail", "delay")).alias("value"))
