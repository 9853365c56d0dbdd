"""The types of decoded values in Spark."""

from typing import TYPE_CHECKING, Any

from pyspark.sql.types import DataType

from streamlog.errors import InvalidOptionError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["spark_type_of"]


def spark_type_of(kind: "pa.DataType") -> DataType:
    """Return Spark's type for the Arrow type of decoded values.

    Raises:
        InvalidOptionError: Spark has no such type, or represents it otherwise in Arrow.
    """
    from pyspark.errors import PySparkTypeError
    from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type

    found: Any = None
    try:
        found = from_arrow_type(kind)
        is_same = to_arrow_type(found, timezone="UTC") == kind
    except PySparkTypeError:
        is_same = False
    if not is_same:
        raise InvalidOptionError("Spark has no type for values of this schema", got=str(kind))
    return found
