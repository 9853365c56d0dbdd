"""Records with decoded keys and values, and the column `_error`.

`ArrowDecoder` gives keys and values as bytes. Here they become columns of the types of a schema.
A record that cannot be decoded stays: its value is null, and `_error` has the original bytes and
the reason. Everything works on whole Arrow arrays.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from streamlog.arrow.schema import COLUMN_NAMES, ERROR, HEADERS, arrow_schema
from streamlog.decoding.decoder import ResolvedSpec, open_decoder
from streamlog.errors import InvalidRecordError

__all__ = ["ERROR_TYPE", "DecodedColumns", "Decoding", "OnBadRecord"]

ERROR_TYPE: Final = pa.struct(
    [
        ("field", pa.string()),
        ("message", pa.string()),
        ("schemaId", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)
_FIELDS: Final = ("key", "value")
_PLACE: Final = ("topic", "partition", "offset")


class OnBadRecord(Enum):
    """What becomes of a record that cannot be decoded; the names are Spark's."""

    PERMISSIVE = "PERMISSIVE"  # a null, and a reason in `_error`
    FAILFAST = "FAILFAST"  # an error of the read


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """How a read decodes; plain values, to send to other processes.

    Attributes:
        key: How keys are decoded; None: they are not.
        value: How values are decoded; None: they are not.
        on_bad_record: What becomes of those that cannot be.
    """

    key: ResolvedSpec | None = None
    value: ResolvedSpec | None = None
    on_bad_record: OnBadRecord = OnBadRecord.PERMISSIVE


class _Bad(NamedTuple):
    """The records of a batch of which one field could not be decoded.

    Attributes:
        field: `key` or `value`.
        messages: pa.StringArray[n]: what is wrong; null where nothing is.
        schema_ids: pa.Int32Array[n].
    """

    field: str
    messages: pa.StringArray
    schema_ids: pa.Int32Array


class DecodedColumns:
    """Decodes the keys and values of record batches; not thread-safe.

    Attributes:
        schema: The schema of the result.
        raw: The columns to read for it, in the order of the schema.

    Args:
        decoding: What to decode.
        columns: Names of the wanted columns, in the order of the schema. `_error` may be one.
        convert: Returns the type to cast decoded values to; by default they stay as they are.

    Raises:
        InvalidOptionError: A schema is invalid.
    """

    def __init__(
        self,
        decoding: Decoding,
        columns: tuple[str, ...],
        *,
        convert: Callable[[pa.DataType], pa.DataType] | None = None,
    ) -> None:
        self._columns = columns
        self._fails_fast = decoding.on_bad_record is OnBadRecord.FAILFAST
        specs = {"key": decoding.key, "value": decoding.value}
        needed = {*columns, *(_FIELDS if ERROR in columns else ())}
        self._decoders = {
            name: open_decoder(spec)
            for name, spec in specs.items()
            if spec is not None and name in needed
        }
        if self._fails_fast:
            needed |= {*_PLACE}
        if any(each.needs_headers for each in self._decoders.values()):
            needed.add(HEADERS)
        self.raw = tuple(name for name in COLUMN_NAMES if name in needed)
        plain = arrow_schema(tuple(name for name in columns if name != ERROR))
        types = {field.name: field.type for field in plain}
        self._types = {
            name: each.arrow_type if convert is None else convert(each.arrow_type)
            for name, each in self._decoders.items()
        }
        types |= {name: kind for name, kind in self._types.items() if name in types}
        types[ERROR] = ERROR_TYPE
        self.schema = pa.schema([(name, types[name]) for name in columns])

    def decode(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches with decoded columns.

        Args:
            batches: Records with the columns `raw`.

        Raises:
            InvalidRecordError: A record cannot be decoded, under `OnBadRecord.FAILFAST`.
            UnavailableError: A registry cannot be reached.
        """
        for batch in batches:
            yield self._decode(batch)

    def _decode(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = {name: batch.column(name) for name in self.raw}
        bad: list[_Bad] = []
        headers = columns.get(HEADERS)
        for name, decoder in self._decoders.items():
            values, messages, schema_ids = decoder.decode(batch.column(name), headers)
            kind = self._types[name]
            columns[name] = values if values.type == kind else values.cast(kind, safe=False)
            if messages.null_count < len(messages):
                bad.append(_Bad(name, messages, schema_ids))
        if bad and self._fails_fast:
            raise _first_error(batch, bad[0])
        if ERROR in self._columns:
            columns[ERROR] = _errors(batch, bad)
        return pa.RecordBatch.from_arrays(
            [columns[name] for name in self._columns], schema=self.schema
        )


def _errors(batch: pa.RecordBatch, bad: list[_Bad]) -> pa.StructArray:
    """Return the column `_error` of a batch."""
    if not bad:
        return pa.nulls(batch.num_rows, ERROR_TYPE)
    field, messages, schema_ids = _described(bad[0])
    is_good = pc.is_null(messages)
    if len(bad) > 1:
        other, more, other_ids = _described(bad[1])
        # Null where one of the two is good, which leaves the other one.
        field = pc.coalesce(pc.binary_join_element_wise(field, other, ", "), field, other)
        both = pc.binary_join_element_wise(
            _labelled(bad[0].field, messages), _labelled(bad[1].field, more), "; "
        )
        is_good = pc.and_(is_good, pc.is_null(more))
        schema_ids = pc.if_else(pc.is_null(messages), other_ids, schema_ids)
        messages = pc.coalesce(both, messages, more)
    nothing = pa.scalar(None, pa.binary())
    key, value = (pc.if_else(is_good, nothing, batch.column(name)) for name in _FIELDS)
    return pa.StructArray.from_arrays(
        [field, messages, schema_ids, key, value], fields=list(ERROR_TYPE), mask=is_good
    )


def _described(bad: _Bad) -> tuple[pa.StringArray, pa.StringArray, pa.Int32Array]:
    """Return field, message and schema id of each record; null for good ones."""
    is_good = pc.is_null(bad.messages)
    field = pc.if_else(is_good, pa.scalar(None, pa.string()), pa.scalar(bad.field))
    return field, bad.messages, pc.if_else(is_good, pa.scalar(None, pa.int32()), bad.schema_ids)


def _labelled(field: str, messages: pa.StringArray) -> pa.StringArray:
    return pc.binary_join_element_wise(pa.scalar(field), messages, ": ")


def _first_error(batch: pa.RecordBatch, bad: _Bad) -> InvalidRecordError:
    at = pc.index(pc.is_valid(bad.messages), True).as_py()
    topic, partition, offset = (batch.column(name)[at].as_py() for name in _PLACE)
    return InvalidRecordError(
        f"the {bad.field} of a record of {topic}-{partition} cannot be decoded",
        offset=offset,
        got=bad.messages[at].as_py(),
        hint="mode PERMISSIVE keeps it, with the reason in the column _error",
    )
