"""Avro values as columns; see `streamlog.decoding.decoded.ValueDecoder`."""

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamlog.binary.arrays import WORD_SIZE, as_source
from streamlog.decoding import avro_layout as a
from streamlog.decoding.arrays import array_of_errors, array_of_ids, validity_of
from streamlog.decoding.avro_columns import AvroColumns
from streamlog.decoding.avro_kernels import decode_avro
from streamlog.decoding.avro_program import AvroPrograms
from streamlog.decoding.avro_schema import parse_avro
from streamlog.decoding.columns import Columns
from streamlog.decoding.decoded import DecodedValues
from streamlog.decoding.frames import Frames, frames_of, why_unknown
from streamlog.decoding.framing import NO_ID
from streamlog.decoding.schema_text import SchemaText
from streamlog.decoding.writer_schemas import WriterSchemas
from streamlog.errors import InvalidOptionError

__all__ = ["AvroDecoder"]

_REASONS: Final = {
    a.TRUNCATED: "the value ends inside",
    a.LONG_NUMBER: "a number has more than 10 bytes",
    a.INT_RANGE: "a number is outside the range of an int",
    a.NEGATIVE_SIZE: "a size is negative",
    a.TOO_MANY: "a block has more items than the value has bytes for",
    a.BAD_SYMBOL: "no such symbol of the enum in the reader's schema",
    a.BAD_BRANCH: "no such branch of the union",
    a.BAD_BOOLEAN: "a boolean is neither 0 nor 1",
    a.BAD_TEXT: "a string is not UTF-8",
    a.BAD_DECIMAL: "a decimal has more digits than its precision",
    a.TOO_DEEP: f"nested more than {a.STACK_SIZE} deep",
    a.LEFT_OVER: "bytes are left over after the value",
    a.SCALED_RANGE: "a time is outside the range of microseconds",
}


class AvroDecoder:
    """Decodes Avro's binary encoding into the columns of a reader's schema.

    Args:
        reader: The reader's schema.
        writers: The writer's schemas.
        field: What the values are, `key` or `value`; a header of the record is named after it.
        is_framed: Whether an id says which schema wrote a value; otherwise it is the reader's.

    Raises:
        InvalidOptionError: The reader's schema is invalid, or has no columns.
        InvalidRequestError: fastavro is missing.
    """

    def __init__(
        self, reader: SchemaText, writers: WriterSchemas, *, is_framed: bool, field: str = "value"
    ) -> None:
        self._writers, self._field = writers, field if is_framed else None
        self.needs_headers = is_framed
        self._columns = AvroColumns.of(parse_avro(reader))
        self._programs = AvroPrograms(self._columns)
        self._entries: dict[int | str, int] = {}
        self._arrays: tuple[Any, ...] = ()
        self._stack = np.zeros(a.STACK_SIZE, np.int64)
        self.arrow_type: pa.DataType = self._columns.tree.nodes[0].type
        if not is_framed:
            self._entries[NO_ID] = self._programs.add(self._columns.schema)

    def decode(self, values: pa.BinaryArray, headers: pa.ListArray | None = None) -> DecodedValues:
        """Decode values; see `ValueDecoder.decode`."""
        values = values.cast(pa.binary())
        is_valid = validity_of(values)
        frames = frames_of(values, headers, self._field)
        entries = self._entries_of(frames, is_valid)
        columns, errors = self._run(*frames.values, entries)
        texts = self._texts(errors, frames.values.starts)
        return DecodedValues(columns.array(), texts, array_of_ids(frames.writers))

    def _entries_of(self, frames: Frames, is_valid: NDArray[np.bool_]) -> Any:
        """Return int64[n]: where the program of each value starts."""
        known, places = frames.distinct(is_valid)
        entries = np.full(len(is_valid), -1, np.int64)
        if known:
            found = [self._entry(writer, frames) for writer in known]
            entries[is_valid] = np.array(found, np.int64)[places]
        return entries

    def _entry(self, writer: int, frames: Frames) -> int:
        schema = frames.schema(writer)
        entry = self._entries.get(schema)
        if entry is not None:
            return entry
        reason = why_unknown(writer, self._field)
        found = reason or self._writers.find(schema)
        entry = self._add_program(found)
        if reason or not isinstance(found, str):  # unknown ids are not kept: there may be many
            self._entries[schema] = entry
        return entry

    def _add_program(self, found: SchemaText | str) -> int:
        if isinstance(found, str):
            return self._programs.add_failure(found)
        try:
            return self._programs.add(parse_avro(found))
        except InvalidOptionError as error:
            return self._programs.add_failure(f"the writer's schema cannot be used: {error}")

    def _run(
        self,
        data: NDArray[np.uint8],
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        entries: NDArray[np.int64],
    ) -> tuple[Columns, NDArray[np.int64]]:
        programs = self._programs
        if not self._arrays or self._arrays[0].size != len(programs.code):
            self._arrays = (
                np.array(programs.code, np.int64),
                np.array(programs.numbers, np.int64),
                np.frombuffer(bytes(programs.pool), np.uint8),
            )
        if data.size < WORD_SIZE:
            data = np.concatenate([data, np.zeros(WORD_SIZE, np.uint8)])
        columns = Columns(self._columns.tree, ends - starts)
        values = as_source(data), starts, ends, entries
        return columns, columns.fill(decode_avro, self._arrays, values, self._stack)

    def _texts(self, errors: NDArray[np.int64], starts: NDArray[np.int64]) -> pa.StringArray:
        bad = np.flatnonzero(errors[:, 0])
        texts: dict[int, str] = {}
        for row in bad.tolist():
            status, position, place = errors[row].tolist()
            texts[row] = self._text(status, position - int(starts[row]), place)
        return array_of_errors(texts, len(errors))

    def _text(self, status: int, position: int, place: int) -> str:
        code, programs = self._programs.code, self._programs
        if status == a.FAILED:
            return programs.messages[code[place + a.A]]
        path = programs.paths[place // a.WIDTH]
        where = f" in field {path}" if path else ""
        return f"{_REASONS[status]}, at byte {position}{where}"
