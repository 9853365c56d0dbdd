"""The types of decoded values in Spark."""

from typing import TYPE_CHECKING, Any

from pyspark.sql.types import DataType

from streamlog.errors import InvalidOptionError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["as_spark_has_it", "spark_type_of"]


def as_spark_has_it(kind: "pa.DataType") -> "pa.DataType":
    """Return the type that decoded values have in Spark.

    A time of day becomes its number of milli- or microseconds: streaming queries refuse Spark's own
    type TIME (UNSUPPORTED_TIME_TYPE). Timestamps have microseconds, as always in Spark.
    """
    import pyarrow as pa

    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz=kind.tz)

    if pa.types.is_time32(kind):
        return pa.int32()
    if pa.types.is_time64(kind):
        return pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct([each.with_type(as_spark_has_it(each.type)) for each in kind])
    if pa.types.is_map(kind):
        return pa.map_(as_spark_has_it(kind.key_type), as_spark_has_it(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(as_spark_has_it(kind.value_type)))
    return kind


def spark_type_of(kind: "pa.DataType") -> DataType:
    """Return Spark's type for the Arrow type of decoded values, as `as_spark_has_it` returns.

    Raises:
        InvalidOptionError: Spark has no such type, or represents it otherwise in Arrow.
    """
    from pyspark.errors import PySparkTypeError
    from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type

    found: Any = None
    try:
        found = from_arrow_type(kind)
        is_same = to_arrow_type(found, timezone="UTC") == kind
    except (PySparkTypeError, ValueError):  # a decimal of more than 38 digits
        is_same = False
    if not is_same:
        raise InvalidOptionError("Spark has no type for values of this schema", got=str(kind))
    return found
