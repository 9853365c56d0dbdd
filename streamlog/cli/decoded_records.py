"""`streamlog cat --decode`: keys and values as JSON, decoded with the schemas of a registry.

Without a reader's schema each value is decoded with the schema that wrote it, so what is shown is
what was written.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

import click
import numpy as np
import pyarrow as pa

from streamlog.cli.output import Output, to_json
from streamlog.decoding.decoded import ValueDecoder
from streamlog.decoding.decoder import DecoderSpec, Format, ResolvedSpec, open_decoder
from streamlog.decoding.framing import NO_ID, data_of, ids_of, spans_of, without_headers
from streamlog.decoding.json_values import parse_value
from streamlog.decoding.schema_text import SchemaText
from streamlog.decoding.writer_schemas import WriterSchemas
from streamlog.errors import CorruptRecordError, InvalidOptionError, StreamLogError
from streamlog.fs.local import LocalFileSystem
from streamlog.records.columns import COLUMNS, BinaryColumn, RecordColumns
from streamlog.records.json_objects import record_object
from streamlog.topic import TopicPartition

__all__ = ["DecodedJsonWriter", "DecodedTextWriter", "FieldDecoder", "RecordDecoder"]

_FIELDS: Final = ("key", "value")
_NO_HEADER: Final = "no header of a schema registry: expected a zero byte and a schema id"


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldDecoder:
    """Decodes the keys or the values of a topic to what JSON shows.

    Attributes:
        kind: Their format.
        registry: URL of a registry, or a directory of schemas.
        schema: The reader's schema, if there is one.
        message: The Protobuf message.
        is_framed: Whether they have Confluent's header.
    """

    kind: Format
    registry: str | None
    schema: str | None
    message: str | None
    is_framed: bool
    _opened: dict[int, ValueDecoder | str] = field(default_factory=dict)

    def check(self) -> None:
        """Raise `InvalidOptionError` if there is no schema to decode with."""
        if self.schema is not None:
            self._opened[NO_ID] = open_decoder(self._spec(schema=self.schema).resolve())
        elif self.kind is not Format.JSON and (self.registry is None or not self.is_framed):
            raise InvalidOptionError(
                f"decoding {self.kind} needs a schema",
                expected="--schema-registry, or --value-schema and --key-schema",
            )

    def _spec(self, **more: Any) -> DecoderSpec:
        return DecoderSpec(
            format=self.kind,
            registry=self.registry,
            message=self.message,
            is_framed=self.is_framed,
            **more,
        )

    def decode(self, values: pa.BinaryArray) -> tuple[list[Any], list[str | None]]:
        """Return what JSON shows of each value, and what is wrong with it."""
        if NO_ID in self._opened:
            return self._decode_with(self._opened[NO_ID], values)
        ids = ids_of(data_of(values), *spans_of(values))
        if self.kind is Format.JSON:
            return _parse(without_headers(values, ids != NO_ID))
        found: list[Any] = [None] * len(values)
        errors: list[str | None] = [None] * len(values)
        for schema_id in np.unique(ids).tolist():
            rows = np.flatnonzero(ids == schema_id)
            some = values.take(pa.array(rows))
            if schema_id == NO_ID:
                decoded: tuple[list[Any], list[str | None]] = [None] * len(rows), _missing(some)
            else:
                decoded = self._decode_with(self._decoder(schema_id), some)
            for row, value, error in zip(rows.tolist(), *decoded, strict=True):
                found[row], errors[row] = value, error
        return found, errors

    def _decoder(self, schema_id: int) -> ValueDecoder | str:
        """Return the decoder for what a schema wrote, or why there is none."""
        if schema_id not in self._opened:
            writers = WriterSchemas(self.registry, SchemaText(""), LocalFileSystem())
            text = writers.find(schema_id)
            if isinstance(text, str):
                self._opened[schema_id] = text
            else:
                try:
                    resolved = ResolvedSpec(spec=self._spec(), reader=text)
                    self._opened[schema_id] = open_decoder(resolved)
                except InvalidOptionError as error:
                    self._opened[schema_id] = f"schema {schema_id} cannot be used: {error}"
        return self._opened[schema_id]

    def _decode_with(
        self, decoder: ValueDecoder | str, values: pa.BinaryArray
    ) -> tuple[list[Any], list[str | None]]:
        if isinstance(decoder, str):
            return [None] * len(values), [decoder] * len(values)
        decoded = decoder.decode(values)
        kind = decoder.arrow_type
        shown = [_shown(value, kind) for value in decoded.values.to_pylist()]
        return shown, decoded.errors.to_pylist()


def _missing(values: pa.BinaryArray) -> list[str | None]:
    return [_NO_HEADER if each.is_valid else None for each in values]


def _parse(values: pa.BinaryArray) -> tuple[list[Any], list[str | None]]:
    """Parse JSON of any form."""
    found: list[Any] = []
    errors: list[str | None] = []
    for value in values.to_pylist():
        error = None
        parsed = None
        if value is not None:
            try:
                parsed = _numbers(parse_value(value))
            except ValueError as bad:
                error = str(bad)
        found.append(parsed)
        errors.append(error)
    return found, errors


def _numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _numbers(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_numbers(each) for each in value]
    return _float(float(value)) if isinstance(value, Decimal) else value


def _float(value: float) -> float | str:
    """Return a number; JSON has none for infinity and NaN."""
    return value if np.isfinite(value) else json.dumps(value)


def _shown(value: Any, kind: pa.DataType) -> Any:
    """Return a value of a column as JSON has it; JSON.md has the table."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {each.name: _shown(value[each.name], each.type) for each in kind}
    if pa.types.is_map(kind):
        return {_name(key): _shown(item, kind.item_type) for key, item in value}
    if pa.types.is_list(kind):
        return [_shown(item, kind.value_type) for item in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value / timedelta(seconds=1)
    return str(value) if isinstance(value, Decimal) else value


def _name(key: Any) -> str:
    return key if isinstance(key, str) else json.dumps(key)


class RecordDecoder:
    """Decodes keys and values of records, and counts those that cannot be decoded.

    Args:
        fields: The decoders of `key` and `value`.
    """

    def __init__(self, fields: Mapping[str, FieldDecoder]) -> None:
        self._fields = fields
        self._bad = 0
        self._first: CorruptRecordError | None = None
        for each in fields.values():
            each.check()

    def decode(
        self, records: RecordColumns, partition: TopicPartition
    ) -> tuple[dict[str, list[Any]], list[dict[str, str]]]:
        """Return decoded values by field, and the errors of each record by field."""
        decoded: dict[str, list[Any]] = {}
        errors: list[dict[str, str]] = [{} for _ in range(records.count)]
        for name, decoder in self._fields.items():
            column: BinaryColumn | None = getattr(records, name)
            if column is None:
                continue
            decoded[name], messages = decoder.decode(_array(column, records.count))
            for row, message in enumerate(messages):
                if message is not None:
                    errors[row][name] = message
        self._count(records, partition, errors)
        return decoded, errors

    def _count(
        self, records: RecordColumns, partition: TopicPartition, errors: list[dict[str, str]]
    ) -> None:
        for row, found in enumerate(errors):
            if found:
                self._bad += 1
                if self._first is None:
                    self._first = CorruptRecordError(
                        f"a record of {partition} cannot be decoded",
                        offset=int(records.offset[row]),
                        got=error_text(found),
                        hint="--format ndjson shows the reason of each in the field error",
                    )

    def findings(self) -> list[StreamLogError]:
        """Return what to report at the end."""
        if self._first is None:
            return []
        if self._bad > 1:
            self._first.what = f"{self._bad} records cannot be decoded, the first one"
        return [self._first]


def error_text(found: Mapping[str, str]) -> str:
    """Return the errors of a record in one line."""
    if len(found) == 1:
        return next(iter(found.values()))
    return "; ".join(f"{name}: {message}" for name, message in found.items())


def _array(column: BinaryColumn, count: int) -> pa.BinaryArray:
    validity = None if column.validity is None else pa.py_buffer(column.validity)
    buffers = [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(pa.binary(), count, buffers)


# ---- printing ------------------------------------------------------------------------------------
class DecodedJsonWriter:
    """Prints JSON objects with decoded keys and values, one per line or as one list.

    Args:
        output: The output.
        encoding: One of `ENCODINGS`, for what is not decoded.
        decoder: Decodes keys and values.
        is_list: Whether to print one JSON list.
    """

    columns = COLUMNS

    def __init__(
        self, output: Output, encoding: str, decoder: RecordDecoder, *, is_list: bool
    ) -> None:
        self._output, self._encoding, self._decoder = output, encoding, decoder
        self._is_list, self._is_first = is_list, True

    def write(self, columns: RecordColumns, partition: TopicPartition) -> None:
        """Print records."""
        decoded, errors = self._decoder.decode(columns, partition)
        for row, (record, found) in enumerate(zip(columns.records(), errors, strict=True)):
            shown = record_object(record, partition, self._encoding)
            good = {name: each[row] for name, each in decoded.items() if name not in found}
            line = {
                name.removesuffix("Base64") if name.removesuffix("Base64") in good else name: each
                for name, each in shown.items()
            }
            line |= good
            if found:
                line["error"] = error_text(found)
            self._print(to_json(line))

    def _print(self, text: bytes) -> None:
        if not self._is_list:
            self._output.write(text + b"\n")
        else:
            self._output.write((b"[" if self._is_first else b",\n ") + text)
            self._is_first = False

    def flush(self) -> None:
        """End the list, if any, and flush the output."""
        if self._is_list:
            self._output.write(b"[]\n" if self._is_first else b"]\n")
        self._output.flush()


class DecodedTextWriter:
    """Replaces keys and values by their JSON, for a writer that prints text.

    Args:
        inner: The writer.
        decoder: Decodes keys and values.
    """

    def __init__(self, inner: Any, decoder: RecordDecoder) -> None:
        self._inner, self._decoder = inner, decoder
        self.columns: frozenset[str] = inner.columns

    def write(self, columns: RecordColumns, partition: TopicPartition) -> None:
        """Print records."""
        decoded, errors = self._decoder.decode(columns, partition)
        for name, values in decoded.items():
            if name == "key" and columns.key is not None:
                columns = replace(columns, key=_texts(columns.key, name, values, errors))
            elif columns.value is not None:
                columns = replace(columns, value=_texts(columns.value, name, values, errors))
        self._inner.write(columns, partition)

    def flush(self) -> None:
        """Flush the output."""
        self._inner.flush()


def _texts(
    column: BinaryColumn, name: str, values: list[Any], errors: list[dict[str, str]]
) -> BinaryColumn:
    """Return a column with the JSON of values; bytes that cannot be decoded stay."""
    texts: list[bytes | None] = [
        raw if raw is None or name in found else to_json({"v": value})[5:-1]
        for raw, value, found in zip(column, values, errors, strict=True)
    ]
    sizes = [0 if text is None else len(text) for text in texts]
    return BinaryColumn(
        offsets=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32),
        data=np.frombuffer(b"".join(text or b"" for text in texts), np.uint8),
        validity=column.validity,
        null_count=column.null_count,
    )


def parse_decode(given: tuple[str, ...]) -> dict[str, Format]:
    """Return the formats by field of `--decode value=avro` and `--decode avro`.

    Raises:
        UsageError: An unknown field or format, or a field twice.
    """
    formats: dict[str, Format] = {}
    for each in given:
        name, has_name, kind = each.rpartition("=")
        if has_name and name not in _FIELDS:
            raise click.UsageError(f"--decode {each}: {name!r} is neither key nor value")
        for one in (name,) if has_name else _FIELDS:
            if one in formats:
                raise click.UsageError(f"--decode: {one} is given twice")
            formats[one] = Format.of(kind, "--decode")
    return formats
