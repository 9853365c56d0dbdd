"""Makes `format("streamlog")` known: Spark imports every top-level module named `pyspark_*`.

An exception here would turn off all data sources of that kind, so nothing happens here.
"""

from streamlog.spark.source import StreamLogSource as DefaultSource

__all__ = ["DefaultSource"]
