"""`streamlog cat --decode`: keys and values as JSON, decoded with the schemas of a registry."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from streamlog.arrow.decoder import headers_array
from streamlog.cli.output import Output, to_json
from streamlog.decoding.as_json import FieldDecoder
from streamlog.errors import CorruptRecordError, StreamLogError
from streamlog.records.columns import COLUMNS, BinaryColumn, RecordColumns
from streamlog.records.json_objects import record_object
from streamlog.topic import TopicPartition

__all__ = ["DecodedJsonWriter", "DecodedTextWriter", "RecordDecoder"]


class RecordDecoder:
    """Decodes keys and values of records, and counts those that cannot be decoded.

    Args:
        fields: The decoders of `key` and `value`.
    """

    def __init__(self, fields: Mapping[str, FieldDecoder]) -> None:
        self._fields = fields
        self._bad = 0
        self._first: CorruptRecordError | None = None

    def decode(
        self, records: RecordColumns, partition: TopicPartition
    ) -> tuple[dict[str, list[Any]], list[dict[str, str]]]:
        """Return decoded values by field, and the errors of each record by field."""
        decoded: dict[str, list[Any]] = {}
        errors: list[dict[str, str]] = [{} for _ in range(records.count)]
        headers = headers_array(records.headers, records.count)
        for name, decoder in self._fields.items():
            column: BinaryColumn | None = getattr(records, name)
            if column is None:
                continue
            decoded[name], messages = decoder.decode(_array(column, records.count), headers)
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
        self.columns: frozenset[str] = inner.columns | {"headers"}  # one may name a schema

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
        raw if raw is None or name in found else to_json(value)
        for raw, value, found in zip(column, values, errors, strict=True)
    ]
    sizes = [0 if text is None else len(text) for text in texts]
    return BinaryColumn(
        offsets=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32),
        data=np.frombuffer(b"".join(text or b"" for text in texts), np.uint8),
        validity=column.validity,
        null_count=column.null_count,
    )
