"""Which schema wrote each value: an id in front of it, or one in a header of its record.

A header `__key_schema_id` or `__value_schema_id` contains a one, the 16 bytes of the schema's GUID,
and for Protobuf the indexes of the message, which otherwise follow the prefix. Nothing stands in
front of the value then. A header may also contain what a prefix does, a zero and an id. As in
Confluent's deserializers, the header counts if there is one, and bytes after the id are ignored in
it. Of several headers with the name the last one counts, as in `Headers.lastHeader`: serializers
append theirs to those that a record has already.

Source: io.confluent.kafka.serializers.schema.id.DualSchemaIdDeserializer and SchemaId; for Python
`confluent_kafka.schema_registry.dual_schema_id_deserializer`, which takes the first one.
"""

import uuid
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamlog.binary.arrays import as_source
from streamlog.decoding.arrays import validity_of
from streamlog.decoding.framing import NO_ID, PREFIX_SIZE, data_of, ids_of, spans_of
from streamlog.decoding.framing_kernels import find_changes, find_headers, read_ids

__all__ = ["BAD_ID", "Frames", "ValueSpans", "distinct_rows", "frames_of", "why_unknown"]

BAD_ID: Final = -2  # a header with the name has no id
_FIRST_GUID: Final = -3  # what stands for the first of `Frames.guids`; the next ones go down
_GUID_MAGIC: Final = 1
_GUID_SIZE: Final = 17  # of the magic byte and a GUID
_HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class ValueSpans(NamedTuple):
    """A range of bytes of each value.

    Attributes:
        data: uint8[b], the bytes of all of them.
        starts: int64[n], where each range starts; -1 if there is none.
        ends: int64[n], where it ends.
    """

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Frames:
    """Which schema wrote each value, and where the encoded values are.

    Attributes:
        writers: int64[n]: the id of a schema, `NO_ID`, `BAD_ID`, or what stands for a GUID. Nulls
            have none.
        values: The encoded values. Those of Protobuf with an id in front of them begin with the
            indexes of the message.
        after_prefix: What follows the ids in front of values.
        after_header_id: What follows the ids in headers.
        guids: The GUIDs that some of `writers` stand for.
    """

    writers: NDArray[np.int64]
    values: ValueSpans
    after_prefix: ValueSpans
    after_header_id: ValueSpans | None
    guids: tuple[str, ...] = ()

    def nameless(self, is_valid: NDArray[np.bool_]) -> list[int]:
        """Return which of some values no schema is named for.

        Args:
            is_valid: bool[n], which values.
        """
        is_nameless = (self.writers < 0) & (self.writers > _FIRST_GUID)
        rows: list[int] = np.flatnonzero(is_valid & is_nameless).tolist()
        return rows

    def distinct(self, is_valid: NDArray[np.bool_]) -> tuple[list[int], Any]:
        """Return the `writers` of some values, each once, and int64[k], which one each of them has.

        Args:
            is_valid: bool[n], which values.
        """
        writers = self.writers[is_valid]
        if len(writers) and (writers == writers[0]).all():  # most often
            return [int(writers[0])], np.zeros(len(writers), np.int64)
        known, places = np.unique(writers, return_inverse=True)
        return known.tolist(), places

    def schema(self, writer: int) -> int | str:
        """Return the id or the GUID for one of `writers`."""
        return writer if writer > _FIRST_GUID else self.guids[_FIRST_GUID - writer]


def why_unknown(writer: int, field: str | None) -> str | None:
    """Return why a value has no schema's id, in one line; None if it has one."""
    if writer == NO_ID:
        return "no header of a schema registry: expected a zero byte and a schema id"
    if writer == BAD_ID:
        return f"no schema id in the header __{field}_schema_id: expected a one and a GUID"
    return None


def frames_of(values: pa.BinaryArray, headers: pa.ListArray | None, field: str | None) -> Frames:
    """Return the frames of values.

    Args:
        values: pa.BinaryArray[n].
        headers: pa.ListArray[n] of structs of `key` and `value`, the headers of the records; None
            if they have none.
        field: What the values are: `key` or `value`; None: there are no ids.
    """
    data, (starts, ends) = as_source(data_of(values)), spans_of(values)
    if field is None:
        nowhere = np.full(len(values), -1, np.int64)
        return Frames(
            nowhere, ValueSpans(data, starts, ends), ValueSpans(data, nowhere, ends), None
        )
    is_valid = validity_of(values)
    writers = np.empty(len(values), np.int64)
    read_ids(data, (starts, ends), is_valid, writers)
    has_prefix = writers >= 0
    found = None if headers is None else _in_headers(headers, f"__{field}_schema_id")
    after_header_id: ValueSpans | None = None
    guids: tuple[str, ...] = ()
    if found is not None:
        rows = np.flatnonzero(is_valid & (found.starts >= 0))
        has_prefix[rows] = False
        at = np.full(len(values), -1, np.int64)
        writers[rows], at[rows], guids = _read_ids(found.data, found.starts[rows], found.ends[rows])
        after_header_id = ValueSpans(found.data, at, found.ends)
    begins = starts + PREFIX_SIZE * has_prefix
    after_prefix = ValueSpans(data, np.where(has_prefix, begins, -1), ends)
    return Frames(writers, ValueSpans(data, begins, ends), after_prefix, after_header_id, guids)


def _in_headers(headers: pa.ListArray, name: str) -> ValueSpans | None:
    """Return the value of the last header of a name in each record; None if no record has one."""
    if headers.type != _HEADERS:
        headers = headers.cast(_HEADERS)
    count, pairs = len(headers), headers.values
    if len(pairs) == 0 or count == 0:
        return None
    stored = np.frombuffer(headers.buffers()[1], np.int32)
    offsets = stored[headers.offset : headers.offset + count + 1].astype(np.int64)
    keys, values = pairs.field(0), pairs.field(1)
    places = np.empty(count, np.int64)
    found = find_headers(
        (offsets[:-1], np.where(validity_of(headers), offsets[1:], offsets[:-1])),
        spans_of(keys),
        as_source(data_of(keys)),
        validity_of(pairs) & validity_of(keys),
        as_source(name.encode()),
        places,
    )
    if found == 0:
        return None
    starts, ends = spans_of(values)
    is_there = places >= 0
    is_there[is_there] = validity_of(values)[places[is_there]]
    places = np.where(is_there, places, 0)
    return ValueSpans(
        as_source(data_of(values)), np.where(is_there, starts[places], -1), ends[places]
    )


def _read_ids(
    data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], tuple[str, ...]]:
    """Return the ids in headers, where they end (-1: it is none), and the GUIDs among them.

    Equal headers in a row, which most are, are looked at once.
    """
    is_new = np.empty(len(starts), np.bool_)
    find_changes(data, starts, ends, is_new)
    writers, sizes, guids = _read_distinct_ids(data, starts[is_new], ends[is_new])
    runs = np.cumsum(is_new) - 1
    return writers[runs], np.where(sizes[runs] > 0, starts + sizes[runs], -1), guids


def _read_distinct_ids(
    data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], tuple[str, ...]]:
    """Return the ids in headers, their sizes (0: it is none), and the GUIDs among them."""
    writers = ids_of(data, starts, ends)
    sizes = np.where(writers == NO_ID, 0, PREFIX_SIZE)
    writers[writers == NO_ID] = BAD_ID
    is_long = np.flatnonzero(ends - starts >= _GUID_SIZE)
    rows = is_long[data[starts[is_long]] == _GUID_MAGIC]
    if not len(rows):
        return writers, sizes, ()
    known, places = distinct_rows(data[starts[rows, None] + np.arange(1, _GUID_SIZE)])
    writers[rows], sizes[rows] = _FIRST_GUID - places, _GUID_SIZE
    return writers, sizes, tuple(str(uuid.UUID(bytes=each.tobytes())) for each in known)


def distinct_rows(rows: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return uint8[k, m], the distinct ones of uint8[n, m], and int64[n], which one each row is.

    Equal rows next to each other, which most are, are looked at once.
    """
    is_new = np.ones(len(rows), bool)
    np.any(rows[1:] != rows[:-1], axis=1, out=is_new[1:])
    known, places = np.unique(rows[is_new], axis=0, return_inverse=True)
    return known, places.reshape(-1)[np.cumsum(is_new) - 1]
