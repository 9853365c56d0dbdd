"""Spark source and sinks: `format("streamlog")` for reading and writing.

Spark finds the format once the package is installed. If it runs another Python, `session()` builds
a SparkSession that runs this one, and `register(spark)` registers the format explicitly. pyspark is
imported on first use of a public name.
"""

from importlib import import_module
from typing import TYPE_CHECKING

# No module of this package may have the name of a public function: importing the module would set
# it as the package's attribute of that name, in place of the function.
if TYPE_CHECKING:
    from streamlog.spark.dead_letter_rows import (
        dead_letters,
        route_dead_letters,
        with_dead_letters,
    )
    from streamlog.spark.foreach_batch import append_batch
    from streamlog.spark.maintenance import maintain
    from streamlog.spark.progress import lag
    from streamlog.spark.query_metrics import export_metrics
    from streamlog.spark.spark_session import register, session

__all__ = [
    "append_batch",
    "dead_letters",
    "export_metrics",
    "lag",
    "maintain",
    "register",
    "route_dead_letters",
    "session",
    "with_dead_letters",
]

_HOME = {
    "append_batch": "foreach_batch",
    "dead_letters": "dead_letter_rows",
    "export_metrics": "query_metrics",
    "lag": "progress",
    "maintain": "maintenance",
    "register": "spark_session",
    "route_dead_letters": "dead_letter_rows",
    "session": "spark_session",
    "with_dead_letters": "dead_letter_rows",
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
