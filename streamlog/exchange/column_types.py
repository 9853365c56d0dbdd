"""Types of decoded columns: what a format can hold, and whether a target has the same ones."""

import pyarrow as pa

from streamlog.errors import InvalidOptionError, InvalidRequestError

__all__ = ["added_fields", "describe", "type_for"]


def type_for(kind: pa.DataType, format: str, name: str) -> pa.DataType:
    """Return the type that a format holds decoded values in.

    Text holds any type. Parquet holds them as they are. Tables have microseconds; Delta has neither
    times of day nor durations, Iceberg no durations: they become whole numbers, as in Spark.

    Args:
        kind: The type of the values.
        format: The format of the export.
        name: The column, for errors.

    Raises:
        InvalidOptionError: The format has no such type.
    """
    if format in ("ndjson", "csv"):
        return kind
    return _converted(kind, format, name)


def _converted(kind: pa.DataType, format: str, name: str) -> pa.DataType:
    if pa.types.is_struct(kind):
        if kind.num_fields == 0:
            raise _without_type(kind, format, name)
        fields = [
            each.with_type(_converted(each.type, format, f"{name}.{each.name}")) for each in kind
        ]
        return pa.struct(fields)
    if pa.types.is_map(kind):
        key = _converted(kind.key_type, format, f"{name}.key")
        return pa.map_(key, _converted(kind.item_type, format, f"{name}.value"))
    if pa.types.is_list(kind):
        element = _converted(kind.value_type, format, f"{name}.element")
        return pa.list_(kind.value_field.with_type(element))
    return kind if format == "parquet" else _leaf_of_table(kind, format, name)


def _leaf_of_table(kind: pa.DataType, format: str, name: str) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz=kind.tz)
    if pa.types.is_duration(kind):
        return pa.int64()
    if pa.types.is_time(kind):
        if format == "iceberg":
            return pa.time64("us")
        return pa.int32() if pa.types.is_time32(kind) else pa.int64()
    if pa.types.is_decimal256(kind) or pa.types.is_null(kind):
        raise _without_type(kind, format, name)
    return kind


def _without_type(kind: pa.DataType, format: str, name: str) -> InvalidOptionError:
    return InvalidOptionError(
        f"{format} has no type for the column {name}",
        got=describe(kind),
        hint="choose --format ndjson, or a schema without it",
    )


def describe(kind: pa.DataType) -> str:
    """Return a type as text that does not depend on a library's version.

    Two types have the same text if they hold the same values: large strings are strings, and
    whether a field may be null does not count.
    """
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{each.name}: {describe(each.type)}' for each in kind)}>"
    if pa.types.is_map(kind):
        return f"map<{describe(kind.key_type)}, {describe(kind.item_type)}>"
    if _is_list(kind):
        return f"list<{describe(kind.value_type)}>"
    return str(kind).removeprefix("large_").removesuffix("_view")


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def added_fields(there: pa.DataType, here: pa.DataType, name: str) -> list[str]:
    """Return the fields that a type has in addition to that of a table.

    Args:
        there: The type of the table's column.
        here: The type of the values to add.
        name: The column, for errors.

    Raises:
        InvalidRequestError: The table has a field that the values lack, or another type.
    """
    if pa.types.is_struct(there) and pa.types.is_struct(here):
        known = {each.name: each.type for each in there}
        missing = sorted(known.keys() - {each.name for each in here})
        if missing:
            raise InvalidRequestError(
                f"the table has the field {name}.{missing[0]}, which the schema lacks",
                got=describe(here),
                expected=describe(there),
                hint="name the table's schema (--value-schema), or export to another table",
            )
        added = []
        for each in here:
            path = f"{name}.{each.name}"
            if each.name in known:
                added += added_fields(known[each.name], each.type, path)
            else:
                added.append(path)
        return added
    if pa.types.is_map(there) and pa.types.is_map(here):
        return [
            *added_fields(there.key_type, here.key_type, f"{name}.key"),
            *added_fields(there.item_type, here.item_type, f"{name}.value"),
        ]
    if _is_list(there) and _is_list(here):
        return added_fields(there.value_type, here.value_type, f"{name}.element")
    if describe(there) != describe(here):
        raise InvalidRequestError(
            f"the column {name} of the table has another type",
            got=describe(here),
            expected=describe(there),
            hint="decode as before, or export to another table",
        )
    return []
