"""Decoded keys and values as JSON shows them, for people: on a terminal, on a page.

Without a reader's schema each value is decoded with the schema that wrote it, so what is shown is
what was written. There are few of them at a time, so they are Python objects.
"""

import base64
import dataclasses
import json
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from streamlog.decoding.any_json import json_number, parsed_json
from streamlog.decoding.decoded import ValueDecoder
from streamlog.decoding.decoder import DecoderSpec, Format, ResolvedSpec, open_decoder
from streamlog.decoding.frames import frames_of, why_unknown
from streamlog.decoding.framing import NO_ID, data_of, ids_of, spans_of, without_prefixes
from streamlog.decoding.schema_text import SchemaText
from streamlog.decoding.writer_schemas import WriterSchemas
from streamlog.errors import InvalidOptionError
from streamlog.fs.local import LocalFileSystem

__all__ = ["FieldDecoder", "json_value"]


@dataclasses.dataclass(slots=True, kw_only=True)
class FieldDecoder:
    """Decodes keys or values to what JSON shows; for one thread at a time.

    Attributes:
        kind: Their format.
        registry: URL of a registry, or a directory of schemas.
        schema: The reader's schema, if there is one.
        message: The Protobuf message.
        is_framed: Whether an id says which schema wrote each of them.
        field: What they are, `key` or `value`.
    """

    kind: Format
    registry: str | None
    schema: str | None
    message: str | None
    is_framed: bool
    field: str = "value"
    _opened: dict[int | str, ValueDecoder | str] = dataclasses.field(default_factory=dict)
    _writers: WriterSchemas = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self._writers = WriterSchemas(self.registry, SchemaText(""), LocalFileSystem())

    def check(self) -> None:
        """Raise `InvalidOptionError` if there is no schema to decode with."""
        if self.schema is not None:
            self._opened[NO_ID] = open_decoder(self._spec(schema=self.schema).resolve())
        elif self.kind is not Format.JSON and (self.registry is None or not self.is_framed):
            raise InvalidOptionError(
                f"decoding {self.kind} needs a schema",
                expected="a schema registry, or a schema of the reader",
                hint="pass --schema-registry URL|DIR",
            )

    def _spec(self, **more: Any) -> DecoderSpec:
        return DecoderSpec(
            format=self.kind,
            registry=self.registry,
            message=self.message,
            is_framed=self.is_framed,
            field=self.field,
            **more,
        )

    def decode(
        self, values: pa.BinaryArray, headers: pa.ListArray | None = None
    ) -> tuple[list[Any], list[str | None]]:
        """Return what JSON shows of each value, and what is wrong with it.

        Args:
            values: pa.BinaryArray[n].
            headers: pa.ListArray[n], the headers of their records; see `ValueDecoder.decode`.
        """
        if NO_ID in self._opened:
            return self._decode_with(self._opened[NO_ID], values, headers)
        if self.kind is Format.JSON:
            has_id = ids_of(data_of(values), *spans_of(values)) != NO_ID
            return parsed_json(without_prefixes(values, has_id))
        found: list[Any] = [None] * len(values)
        errors: list[str | None] = [None] * len(values)
        frames = frames_of(values, headers, self.field)
        for writer in np.unique(frames.writers).tolist():
            rows = np.flatnonzero(frames.writers == writer)
            places = pa.array(rows)
            some = values.take(places)
            reason = why_unknown(writer, self.field)
            if reason is not None:
                decoded = _refused(some, reason)
            else:
                decoder = self._decoder(frames.schema(writer))
                of_some = None if headers is None else headers.take(places)
                decoded = self._decode_with(decoder, some, of_some)
            for row, value, error in zip(rows.tolist(), *decoded, strict=True):
                found[row], errors[row] = value, error
        return found, errors

    def _decoder(self, schema: int | str) -> ValueDecoder | str:
        """Return the decoder for what a schema wrote, or why there is none."""
        if schema not in self._opened:
            text = self._writers.find(schema)
            if isinstance(text, str):
                return text  # not kept: there may be as many as values
            try:
                resolved = ResolvedSpec(spec=self._spec(), reader=text)
                self._opened[schema] = open_decoder(resolved)
            except InvalidOptionError as error:
                self._opened[schema] = f"schema {schema} cannot be used: {error}"
        return self._opened[schema]

    def _decode_with(
        self, decoder: ValueDecoder | str, values: pa.BinaryArray, headers: pa.ListArray | None
    ) -> tuple[list[Any], list[str | None]]:
        if isinstance(decoder, str):
            return _refused(values, decoder)
        decoded = decoder.decode(values, headers)
        errors = decoded.errors.to_pylist()
        try:
            found = decoded.values.to_pylist()
        except (OverflowError, ValueError):
            found = [_in_calendar(value, errors, row) for row, value in enumerate(decoded.values)]
        return [json_value(value, decoder.arrow_type) for value in found], errors


def _in_calendar(value: pa.Scalar, errors: list[str | None], row: int) -> Any:
    """Return a value; none, and an error, if a time in it is beyond the years of Python."""
    try:
        return value.as_py()
    except (OverflowError, ValueError) as error:
        errors[row] = f"a time cannot be shown: {error}"
        return None


def _refused(values: pa.BinaryArray, reason: str) -> tuple[list[Any], list[str | None]]:
    return [None] * len(values), [reason if each.is_valid else None for each in values]


def json_value(value: Any, kind: pa.DataType) -> Any:
    """Return a value of a column as JSON has it; JSON.md has the table."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {each.name: json_value(value[each.name], each.type) for each in kind}
    if pa.types.is_map(kind):
        return {_name(key): json_value(item, kind.item_type) for key, item in value}
    if pa.types.is_list(kind):
        return [json_value(item, kind.value_type) for item in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float):
        return json_number(value)
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value / timedelta(seconds=1)
    return str(value) if isinstance(value, Decimal) else value


def _name(key: Any) -> str:
    return key if isinstance(key, str) else json.dumps(key)
