"""`CREATE TABLE … USING streamlog`: the options of a table, kept in its schema.

Spark asks a Python source for the schema of a new table and hands over the statement's options
then, mixed with what its catalog adds (`location`, `owner`, `provider`, each option once more as
`option.NAME`). When the table is read later it hands over none of them, only the schema that it
stored. So the schema of a table carries the options, as metadata of its first column.

Neither a table whose statement lists the columns (Spark asks for no schema) nor `INSERT INTO`
(Spark hands over the schema of the rows) can be served like that; both are refused.

Source: org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2.getTable, which
leaves its argument `properties` unused.
"""

import json
from collections.abc import Mapping
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from streamlog.errors import InvalidOptionError

__all__ = ["options_of_reader", "options_of_statement", "schema_with_options"]

_METADATA_KEY: Final = "streamlog.options"
# Only a catalog sets it: TableCatalog.PROP_PROVIDER
_PROVIDER: Final = "provider"
_PREFIX: Final = "option."  # TableCatalog.OPTION_PREFIX
_PATHS: Final = ("path", "location")

# What `schema.spark_schema` says as text, which only a process with a SparkContext can parse.
_TYPES: Final[Mapping[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(
        StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    ),
}


def options_of_statement(options: Mapping[str, str]) -> dict[str, str] | None:
    """Return the options of a CREATE TABLE, None where the options come from elsewhere.

    Args:
        options: As Spark hands them over to the source; names in lower case.
    """
    if _PROVIDER not in options:
        return None
    given = {
        name.removeprefix(_PREFIX): value
        for name, value in options.items()
        if name.startswith(_PREFIX)
    }
    path = next((options[name] for name in _PATHS if name in options), None)
    return given if path is None else {**given, "path": path}


def schema_with_options(columns: tuple[str, ...], options: Mapping[str, str]) -> StructType:
    """Return the schema of a new table, which carries its options.

    Args:
        columns: The names of the columns.
        options: The options of the statement.
    """
    schema = StructType([StructField(name, _TYPES[name]) for name in columns])
    schema.fields[0].metadata = {_METADATA_KEY: json.dumps(options)}
    return schema


def options_of_reader(options: Mapping[str, str], schema: StructType) -> dict[str, str]:
    """Return the options of a read: those of the table, then those of the read itself.

    Args:
        options: Those of the read, as Spark hands them over.
        schema: What is to be read, perhaps that of a table.

    Raises:
        InvalidOptionError: There are none; Spark has lost those of a table.
    """
    stored = schema.fields[0].metadata.get(_METADATA_KEY) if schema.fields else None
    merged = {**(json.loads(stored) if stored else {}), **options}
    if not merged:
        raise InvalidOptionError(
            "this table has no options: Spark passes them to a Python source only when it asks "
            "for the columns",
            expected="CREATE TABLE name USING streamlog OPTIONS (…) without a list of columns",
        )
    return merged
