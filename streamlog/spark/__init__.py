"""Spark on both sides of the log: `format("streamlog")` for reading and writing.

Installing the package is enough: Spark finds the format by itself. Where it asks another Python,
`session()` builds a SparkSession that asks this one, and `register(spark)` names the format by
hand. pyspark is imported when one of the names is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

# No module here may be called like a public name: whoever imports the module first, this package
# would have that under the name, and not what is looked for.
if TYPE_CHECKING:
    from streamlog.spark.foreach_batch import append_batch
    from streamlog.spark.maintenance import maintain
    from streamlog.spark.progress import lag
    from streamlog.spark.spark_session import register, session

__all__ = ["append_batch", "lag", "maintain", "register", "session"]

_HOME = {
    "append_batch": "foreach_batch",
    "lag": "progress",
    "maintain": "maintenance",
    "register": "spark_session",
    "session": "spark_session",
}

if not TYPE_CHECKING:

    def __getattr__(name):
        if name in _HOME:
            value = getattr(import_module(f"streamlog.spark.{_HOME[name]}"), name)
            globals()[name] = value
            return value
        raise AttributeError(f"module 'streamlog.spark' has no attribute {name!r}")

    def __dir__():
        return sorted(__all__)
