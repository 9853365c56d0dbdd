"""A topic as a streaming table, a table built from it, and a flow into another topic."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()
PATH = spark.conf.get("streamlog.path")


@dp.table
def visits() -> DataFrame:
    """Every record of the topic, once."""
    topic = spark.readStream.format("streamlog").option("path", PATH).option("subscribe", "visits")
    records = topic.option("startingOffsets", "earliest").load()
    return records.selectExpr("string(key) AS visitor", "string(value) AS page", "timestamp")


@dp.materialized_view
def pages() -> DataFrame:
    """How often each page was visited."""
    return spark.read.table("visits").groupBy("page").count()


dp.create_sink("carts", "streamlog", {"path": PATH, "topic": "carts"})


@dp.append_flow(target="carts")
def carts_to_topic() -> DataFrame:
    """The visits of the cart, into a topic, exactly once."""
    carts = spark.readStream.table("visits").where("page = '/cart'")
    return carts.selectExpr("visitor AS key", "page AS value")
