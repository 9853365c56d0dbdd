"""Avro decoded one value at a time by fastavro, in the shape of the columns."""

import io
from collections.abc import Mapping
from datetime import timezone
from decimal import localcontext
from typing import Any

import fastavro

Schema = Any


def plain_decode_avro(writer: Schema, reader: Schema, value: bytes) -> Any:
    """Return a value as `to_pylist` of its column shows it.

    Args:
        writer: The schema it was written with, as JSON has it.
        reader: The schema to read it with.
        value: Its bytes.

    Raises:
        Exception: Whatever fastavro raises for bad bytes; ValueError if bytes are left over.
    """
    named: dict[str, Schema] = {}
    parsed = fastavro.parse_schema(reader, named)
    source = io.BytesIO(value)
    with localcontext() as context:
        context.prec = 80
        found = fastavro.schemaless_reader(
            source, fastavro.parse_schema(writer), parsed, return_named_type=True
        )
    if source.read(1):
        raise ValueError("bytes are left over")
    return _shaped(found, parsed, named)


def _shaped(found: Any, schema: Schema, named: Mapping[str, Schema]) -> Any:
    schema = named.get(schema, schema) if isinstance(schema, str) else schema
    if isinstance(schema, list):
        return _shaped_union(found, schema, named)
    if isinstance(found, tuple):
        found = found[1]
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind == "record":
        return {
            field["name"]: _shaped(found[field["name"]], field["type"], named)
            for field in schema["fields"]
        }
    if kind == "array":
        return [_shaped(item, schema["items"], named) for item in found]
    if kind == "map":
        return [(key, _shaped(item, schema["values"], named)) for key, item in found.items()]
    if not isinstance(schema, str):
        logical = schema.get("logicalType")
        if logical == "uuid":
            return str(found)
        if logical in ("timestamp-millis", "timestamp-micros"):
            return found.astimezone(timezone.utc)
    if kind == "string" and isinstance(found, bytes):
        return found.decode()
    if kind == "bytes" and isinstance(found, str):
        return found.encode()
    return found


def _shaped_union(found: Any, branches: list[Schema], named: Mapping[str, Schema]) -> Any:
    some = [branch for branch in branches if branch != "null"]
    if found is None:
        return None
    if len(some) == 1:
        return _shaped(found, some[0], named)
    if set(map(str, some)) in ({"int", "long"}, {"float", "double"}):
        return found
    chosen = next(n for n, branch in enumerate(some) if _is_of(found, branch, named))
    return {
        f"member{n}": _shaped(found, branch, named) if n == chosen else None
        for n, branch in enumerate(some)
    }


def _is_of(found: Any, branch: Schema, named: Mapping[str, Schema]) -> bool:
    if isinstance(found, tuple):
        name = branch if isinstance(branch, str) else branch.get("name")
        return bool(name == found[0])
    kinds = {
        "boolean": bool,
        "int": int,
        "long": int,
        "float": float,
        "double": float,
        "string": str,
        "bytes": bytes,
        "array": list,
        "map": dict,
    }
    kind = branch if isinstance(branch, str) else branch["type"]
    return type(found) is kinds.get(kind)
