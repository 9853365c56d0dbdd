"""Spark's DDL of schemas as Arrow types: `id BIGINT, tags ARRAY<STRING>, at TIMESTAMP`.

Spark's JSON form (`df.schema.json()`) is read as well. Source: Spark's SQL reference, "Data Types",
and `pyspark.sql.types.StructType.fromDDL`.
"""

import json
import re
from typing import Any, Final

import pyarrow as pa

from streamlog.errors import InvalidOptionError

__all__ = ["ddl_of_type", "type_of_ddl"]

_MAX_DEPTH: Final = 100
_MAX_PRECISION: Final = 38
_TOKEN: Final = re.compile(
    r"\s*(`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\w+|[<>(),:])"
)
_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_SIMPLE: Final[dict[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "tinyint": pa.int8(),
    "short": pa.int16(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": _TIMESTAMP,
    "timestamp_ltz": _TIMESTAMP,
    "timestamp_ntz": pa.timestamp("us"),
}
_DECIMALS: Final = ("decimal", "dec", "numeric")
_NAMES: Final[dict[pa.DataType, str]] = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.date32(): "DATE",
    _TIMESTAMP: "TIMESTAMP",
    pa.timestamp("us"): "TIMESTAMP_NTZ",
}


def type_of_ddl(text: str) -> pa.StructType:
    """Return the struct that a DDL or Spark's JSON form of a schema describes.

    Raises:
        InvalidOptionError: It is neither, or it names an unknown type.
    """
    if text.lstrip().startswith("{"):
        return _type_of_json(text)
    return _Parser(text).schema()


def ddl_of_type(kind: pa.DataType) -> str:
    """Return the DDL of a struct's fields, which `type_of_ddl` reads.

    Raises:
        InvalidOptionError: A type that Spark does not have.
    """
    return ", ".join(f"{_quoted(field.name)} {_ddl(field.type)}" for field in kind)


def _ddl(kind: pa.DataType) -> str:
    if pa.types.is_struct(kind):
        inside = ", ".join(f"{_quoted(field.name)}: {_ddl(field.type)}" for field in kind)
        return f"STRUCT<{inside}>"
    if pa.types.is_map(kind):
        return f"MAP<{_ddl(kind.key_type)}, {_ddl(kind.item_type)}>"
    if pa.types.is_list(kind):
        return f"ARRAY<{_ddl(kind.value_type)}>"
    if pa.types.is_decimal128(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if kind not in _NAMES:
        raise InvalidOptionError("no type of Spark for it", got=str(kind))
    return _NAMES[kind]


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


class _Parser:
    """Reads one schema; `_at` is the next token."""

    def __init__(self, text: str) -> None:
        self._text, self._tokens, self._at, self._depth = text, _tokens(text), 0, 0

    def schema(self) -> pa.StructType:
        kind = self._wrapped() if self._is_whole_struct() else self._fields(end=None)
        if self._peek() is not None:
            raise self._wrong("a comma or the end")
        return kind

    def _is_whole_struct(self) -> bool:
        return [token.lower() for token in self._tokens[:2]] == ["struct", "<"]

    def _wrapped(self) -> pa.StructType:
        self._at += 1
        return self._struct()

    def _struct(self) -> pa.StructType:
        self._take("<")
        return self._fields(end=">")

    def _fields(self, end: str | None) -> pa.StructType:
        fields: list[pa.Field] = []
        while self._peek() != end:
            if fields:
                self._take(",")
            fields.append(self._field())
        if end is not None:
            self._take(end)
        names = [field.name for field in fields]
        if not fields or len(set(names)) < len(names):
            raise InvalidOptionError(
                "a schema needs fields, each with a name of its own", got=repr(self._text)
            )
        return pa.struct(fields)

    def _field(self) -> pa.Field:
        token = self._next("a field's name")
        name = token[1:-1].replace("``", "`") if token.startswith("`") else token
        if not token.startswith("`") and not re.fullmatch(r"\w+", token):
            raise self._wrong("a field's name", back=1)
        if self._peek() == ":":
            self._at += 1
        field = pa.field(name, self._type())
        if self._words(2) == ["not", "null"]:
            self._at += 2
        if self._words(1) == ["comment"]:
            self._at += 1
            if not self._next("a comment").startswith(("'", '"')):
                raise self._wrong("a quoted comment", back=1)
        return field

    def _type(self) -> pa.DataType:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise InvalidOptionError(
                "types are nested too deeply", expected=f"at most {_MAX_DEPTH}"
            )
        name = self._next("a type").lower()
        kind: pa.DataType
        if name in _SIMPLE:
            kind = _SIMPLE[name]
        elif name in _DECIMALS:
            kind = self._decimal()
        elif name in ("varchar", "char"):
            self._arguments(1)
            kind = pa.string()
        elif name == "array":
            self._take("<")
            kind = pa.list_(self._type())
            self._take(">")
        elif name == "map":
            self._take("<")
            key = self._type()
            self._take(",")
            kind = pa.map_(key, self._type())
            self._take(">")
        elif name == "struct":
            kind = self._struct()
        else:
            raise self._wrong("a type of Spark, such as BIGINT or ARRAY<STRING>", back=1)
        self._depth -= 1
        return kind

    def _decimal(self) -> pa.DataType:
        numbers = self._arguments(2) if self._peek() == "(" else []
        precision, scale = [*numbers, *[10, 0][len(numbers) :]]
        if not (0 < precision <= _MAX_PRECISION and scale <= precision):
            raise self._wrong(f"a precision of 1 to {_MAX_PRECISION}, and a scale below", back=1)
        return pa.decimal128(precision, scale)

    def _arguments(self, most: int) -> list[int]:
        self._take("(")
        numbers: list[int] = []
        while self._peek() != ")":
            if numbers:
                self._take(",")
            token = self._next("a number")
            if not token.isdecimal() or len(numbers) == most:
                raise self._wrong("a number", back=1)
            numbers.append(int(token))
        self._take(")")
        if not numbers:
            raise self._wrong("a number", back=1)
        return numbers

    def _words(self, count: int) -> list[str]:
        return [token.lower() for token in self._tokens[self._at : self._at + count]]

    def _peek(self) -> str | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _next(self, expected: str) -> str:
        token = self._peek()
        if token is None:
            raise self._wrong(expected)
        self._at += 1
        return token

    def _take(self, token: str) -> None:
        if self._next(repr(token)) != token:
            raise self._wrong(repr(token), back=1)

    def _wrong(self, expected: str, back: int = 0) -> InvalidOptionError:
        at = self._at - back
        got = repr(self._tokens[at]) if at < len(self._tokens) else "the end"
        return InvalidOptionError(f"invalid schema {self._text!r}", got=got, expected=expected)


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    at = 0
    while text[at:].strip():
        found = _TOKEN.match(text, at)
        if found is None:
            raise InvalidOptionError(
                f"invalid schema {text!r}",
                got=repr(text[at:].strip()[:20]),
                expected="a Spark DDL, such as id BIGINT, name STRING",
            )
        tokens.append(found[1])
        at = found.end()
    return tokens


# ---- Spark's JSON form ---------------------------------------------------------------------------
def _type_of_json(text: str) -> pa.StructType:
    try:
        kind = _json_type(json.loads(text), 0)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidOptionError(
            "invalid schema in JSON",
            got=f"{type(error).__name__}: {error}",
            expected="what df.schema.json() returns",
        ) from None
    if not pa.types.is_struct(kind):
        raise InvalidOptionError("a schema is a struct", got=str(kind))
    return kind


def _json_type(found: Any, depth: int) -> pa.DataType:
    if depth > _MAX_DEPTH:
        raise ValueError(f"nested more than {_MAX_DEPTH} deep")
    if isinstance(found, str):
        return type_of_ddl(f"x {found}").field(0).type
    if found["type"] == "struct":
        return pa.struct(
            [(each["name"], _json_type(each["type"], depth + 1)) for each in found["fields"]]
        )
    if found["type"] == "array":
        return pa.list_(_json_type(found["elementType"], depth + 1))
    if found["type"] == "map":
        return pa.map_(
            _json_type(found["keyType"], depth + 1), _json_type(found["valueType"], depth + 1)
        )
    raise ValueError(f"unknown type {found['type']!r}")
