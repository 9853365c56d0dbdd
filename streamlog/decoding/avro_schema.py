"""Avro schemas: parsed by fastavro, and their named types."""

import json
from typing import Any, Final, NamedTuple

from streamlog.decoding.errors import missing_extra
from streamlog.decoding.schema_text import SchemaText
from streamlog.errors import InvalidOptionError

__all__ = ["AvroSchema", "Schema", "decimal_of", "kind_of", "logical_of", "parse_avro"]

Schema = Any  # as fastavro has them: a name, a list of branches, or a dict with a type
_MAX_LOGICAL_PRECISION: Final = 76  # of an Arrow decimal
# The logical types that change how values are read; others are read as what they annotate.
_LOGICAL: Final = {
    ("bytes", "decimal"),
    ("fixed", "decimal"),
    ("int", "date"),
    ("int", "time-millis"),
    ("long", "time-micros"),
    *(
        ("long", f"{prefix}timestamp-{unit}")
        for prefix in ("", "local-")
        for unit in ("millis", "micros", "nanos")
    ),
    ("string", "uuid"),
    ("fixed", "uuid"),
}
_UUID_SIZE: Final = 16


class AvroSchema(NamedTuple):
    """A parsed schema.

    Attributes:
        root: The schema of a value; names in it are full.
        named: Records, enums and fixed types by full name.
    """

    root: Schema
    named: dict[str, Schema]

    def resolved(self, schema: Schema) -> Schema:
        """Return the type that a name stands for; other schemas unchanged."""
        if isinstance(schema, str):
            return self.named.get(schema, schema)
        return schema


def parse_avro(text: SchemaText) -> AvroSchema:
    """Return the parsed schema.

    Raises:
        InvalidOptionError: It is not an Avro schema, or refers to unknown types.
        InvalidRequestError: fastavro is missing.
    """
    try:
        from fastavro.schema import parse_schema
    except ImportError as error:
        raise missing_extra("decoding Avro", error) from error
    named: dict[str, Schema] = {}
    try:
        for _, reference in text.references:
            parse_schema(json.loads(reference), named, _ignore_default_error=True)
        root = parse_schema(json.loads(text.text), named, _ignore_default_error=True)
    except RecursionError:
        raise InvalidOptionError("the Avro schema is nested too deeply") from None
    except Exception as error:
        raise InvalidOptionError(
            "invalid Avro schema",
            got=f"{type(error).__name__}: {error}",
            expected="a schema as in the Avro specification",
        ) from error
    return AvroSchema(root, named)


def kind_of(schema: Schema) -> str:
    """Return the type of a resolved schema, such as `record`, `union` or `long`."""
    if isinstance(schema, list):
        return "union"
    kind = schema if isinstance(schema, str) else schema["type"]
    if isinstance(kind, dict | list):  # {"type": {"type": "long"}}
        return kind_of(kind)
    return "record" if kind == "error" else str(kind)


def logical_of(schema: Schema) -> str | None:
    """Return the logical type of a schema if it changes how values are read.

    Invalid ones are ignored, as the specification demands.
    """
    if not isinstance(schema, dict):
        return None
    logical, kind = schema.get("logicalType"), kind_of(schema)
    if (kind, logical) not in _LOGICAL:
        return None
    if logical == "uuid" and kind == "fixed" and schema["size"] != _UUID_SIZE:
        return None
    if logical == "decimal" and not _is_decimal(schema):
        return None
    return str(logical)


def _is_decimal(schema: Schema) -> bool:
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    return (
        isinstance(precision, int)
        and isinstance(scale, int)
        and 0 < precision <= _MAX_LOGICAL_PRECISION
        and 0 <= scale <= precision
    )


def decimal_of(schema: Schema) -> tuple[int, int]:
    """Return precision and scale of a decimal."""
    return schema["precision"], schema.get("scale", 0)
