"""Protobuf values as columns; see `streamlog.decoding.decoded.ValueDecoder`."""

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamlog.decoding import protobuf_layout as p
from streamlog.decoding.arrays import array_of_errors, array_of_ids, validity_of
from streamlog.decoding.columns import Columns
from streamlog.decoding.decoded import DecodedValues
from streamlog.decoding.frames import Frames, ValueSpans, distinct_rows, frames_of, why_unknown
from streamlog.decoding.protobuf_columns import ProtobufColumns
from streamlog.decoding.protobuf_kernels import decode_protobuf, measure_indexes
from streamlog.decoding.protobuf_schema import parse_protobuf
from streamlog.decoding.schema_text import SchemaText
from streamlog.decoding.writer_schemas import WriterSchemas
from streamlog.errors import InvalidOptionError

__all__ = ["ProtobufDecoder"]

_REASONS: Final = {
    p.TRUNCATED: "the value ends inside",
    p.LONG_NUMBER: "a number has more than 10 bytes",
    p.BAD_TAG: "no such field number or wire type",
    p.BAD_GROUP: "a group does not end, or ends where none began",
    p.TOO_DEEP: f"groups are nested more than {p.MAX_DEPTH} deep",
    p.BAD_TEXT: "a string is not UTF-8",
    p.BAD_ONEOF: "two members of a oneof are set, one of them a message",
    p.BAD_TIME: "a Timestamp or Duration is out of range",
}
_WORD: Final = 8  # bytes
_BAD_INDEXES: Final = "the indexes of the message in the header are cut off or too many"


class ProtobufDecoder:
    """Decodes Protobuf's wire format into the columns of a message.

    Fields are found by their numbers, so values of older and newer versions of the message are
    read as well. Fields that the reader's schema does not have are skipped.

    Args:
        reader: The reader's schema.
        message: The full name of the message; by default the first one of the schema.
        writers: The writer's schemas, which name the message of each value.
        is_framed: Whether an id says which schema wrote a value.
        field: What the values are, `key` or `value`; a header of the record is named after it.

    Raises:
        InvalidOptionError: The schema is invalid, or has no such message.
        InvalidRequestError: A library is missing.
    """

    def __init__(
        self,
        reader: SchemaText,
        message: str | None,
        writers: WriterSchemas,
        *,
        is_framed: bool,
        field: str = "value",
    ) -> None:
        self._writers, self._field = writers, field if is_framed else None
        self.needs_headers = is_framed
        descriptor = parse_protobuf(reader).message(message)
        self._name = descriptor.full_name
        self._columns = ProtobufColumns(descriptor)
        self._arrays = self._columns.arrays()
        self._stack = np.zeros(p.STACK_SIZE, np.int64)
        self._refused: dict[tuple[int | str, bytes], str | None] = {}
        self.arrow_type: pa.DataType = self._columns.tree.nodes[0].type

    def decode(self, values: pa.BinaryArray, headers: pa.ListArray | None = None) -> DecodedValues:
        """Decode values; see `ValueDecoder.decode`."""
        values = values.cast(pa.binary())
        is_wanted = validity_of(values)
        texts: dict[int, str] = {}
        frames = frames_of(values, headers, self._field)
        data, starts, ends = frames.values
        if self._field is not None:
            for row in frames.nameless(is_wanted):
                texts[row] = str(why_unknown(int(frames.writers[row]), self._field))
            starts = starts + self._check_indexes(frames.after_prefix, frames, texts)
            if frames.after_header_id is not None:
                self._check_indexes(frames.after_header_id, frames, texts)
            is_wanted[list(texts)] = False
        columns = Columns(self._columns.tree, ends - starts)
        wanted = data, starts, ends, is_wanted
        errors = columns.fill(decode_protobuf, self._arrays, wanted, self._stack)
        for row in np.flatnonzero(errors[:, 0]).tolist():
            status, position, table = errors[row].tolist()
            name = self._columns.names[table]
            texts[row] = f"{_REASONS[status]}, at byte {position - int(starts[row])} in {name}"
        return DecodedValues(
            columns.array(), array_of_errors(texts, len(values)), array_of_ids(frames.writers)
        )

    def _check_indexes(
        self, place: ValueSpans, frames: Frames, texts: dict[int, str]
    ) -> NDArray[np.int64]:
        """Compare the messages that indexes name with the reader's; return int64[n], their sizes.

        Args:
            place: Where there are indexes.
            frames: The schemas.
            texts: Gets what is wrong with values, by their rows.
        """
        sizes = np.zeros(len(place.starts), np.int64)
        measure_indexes(*place, sizes)
        for row in np.flatnonzero(sizes < 0).tolist():
            texts[row] = _BAD_INDEXES
        for size in np.unique(sizes[sizes > 0]).tolist():
            rows = np.flatnonzero(sizes == size)
            at = place.starts[rows, None] + np.arange(size)
            writers = frames.writers[rows].astype(">i8").view(np.uint8).reshape(-1, _WORD)
            known, places = distinct_rows(np.hstack([place.data[at], writers]))
            for number, each in enumerate(known):
                indexes, writer = each[:size].tobytes(), each[size:].tobytes()
                schema = frames.schema(int.from_bytes(writer, "big", signed=True))
                refused = self._refusal(schema, indexes)
                if refused is not None:
                    texts.update(dict.fromkeys(rows[places == number].tolist(), refused))
        return np.maximum(sizes, 0)

    def _refusal(self, schema: int | str, indexes: bytes) -> str | None:
        """Return why values of a schema and message are not decoded, or None if they are."""
        key = schema, indexes
        if key not in self._refused:
            found = self._message_of(schema, indexes)
            if found == self._name:
                self._refused[key] = None
            else:
                return found if " " in found else f"message {found}, expected {self._name}"
        return self._refused[key]

    def _message_of(self, schema: int | str, indexes: bytes) -> str:
        """Return the name of the message at indexes, or why it is not known, with a space."""
        found = self._writers.find(schema)
        if isinstance(found, str):
            return found
        try:
            parsed = parse_protobuf(found)
        except InvalidOptionError as error:
            return f"the writer's schema cannot be used: {error}"
        path = _indexes_of(indexes)
        return parsed.name_at(path) or f"no message {path} in the writer's schema {schema}"


def _indexes_of(header: bytes) -> list[int]:
    """Return the indexes of a header: zig-zag varints, their count first; nothing is the first."""
    numbers, number, shift = [], 0, 0
    for byte in header:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            numbers.append(number >> 1 ^ -(number & 1))
            number = shift = 0
    return numbers[1:] or [0]
