"""What an export reads of each record, and how keys and values are decoded."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from streamlog.arrow.decoded_columns import DecodedColumns, Decoding
from streamlog.arrow.log_view import OffsetRange
from streamlog.arrow.schema import COLUMN_NAMES, ERROR, arrow_schema
from streamlog.errors import InvalidRecordError
from streamlog.exchange.batches import offsets_of
from streamlog.exchange.column_types import type_for
from streamlog.exchange.source import ExportSource

__all__ = ["ExportColumns"]


class ExportColumns:
    """The columns of an export; not thread-safe.

    Args:
        wanted: The columns of the target, in the order of the schema.
        format: The format of the target, which decides about types.
        decoding: How keys and values are decoded; None: they stay bytes.

    Attributes:
        schema: The schema of the target.
        raw: The columns to read: with the offset, which says how far an export is.
        decoded: The columns that are decoded, with their types.
        any_json: Those of them that are JSON text, as no schema says what they have.

    Raises:
        InvalidOptionError: The format has no type for a decoded value.
    """

    def __init__(
        self, wanted: tuple[str, ...], format: str, decoding: Decoding | None = None
    ) -> None:
        names = tuple(each for each in COLUMN_NAMES if each in wanted or each == "offset")
        self.raw, self.schema = names, arrow_schema(names)
        self._columns: DecodedColumns | None = None
        self.decoded: dict[str, pa.DataType] = {}
        self.any_json: set[str] = set()
        if decoding is not None:
            self._columns = self._open(_needed(decoding, wanted), names, format)
            self.raw, self.schema = self._columns.raw, self._columns.schema
        self.schema = pa.schema([each for each in self.schema if each.name in wanted])

    def _open(self, decoding: Decoding, names: tuple[str, ...], format: str) -> DecodedColumns:
        # `_error` is read even if it is not wanted, to count what cannot be decoded.
        columns = (*names, ERROR)
        plain = DecodedColumns(decoding, columns).schema
        specs = {"key": decoding.key, "value": decoding.value}
        for name, spec in specs.items():
            if spec is not None and name in names:
                self.decoded[name] = type_for(plain.field(name).type, format, name)
                if spec.reader is None:
                    self.any_json.add(name)
        types = {plain.field(name).type: kind for name, kind in self.decoded.items()}
        return DecodedColumns(decoding, columns, convert=lambda kind: types.get(kind, kind))

    def read(self, source: ExportSource, part: OffsetRange) -> Iterator[pa.RecordBatch]:
        """Yield the records of a range, with at least the columns of the target.

        Raises:
            InvalidRecordError: A record cannot be decoded, and that is to be an error. Those
                before it were yielded.
            UnavailableError: A schema registry cannot be reached.
            StreamLogError: As `ExportSource.read`.
        """
        for batch in source.read(part, self.raw):
            if self._columns is None:
                yield batch
            else:
                yield from self._decode(self._columns, batch)

    def _decode(self, columns: DecodedColumns, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        try:
            yield from columns.decode([batch])
        except InvalidRecordError as error:
            before = int(np.searchsorted(offsets_of(batch), error.offset or 0))
            yield from self._decode(columns, batch.slice(0, before))
            raise


def _needed(decoding: Decoding, wanted: tuple[str, ...]) -> Decoding:
    """Return how to decode what is wanted: the errors of other columns are not."""
    if ERROR in wanted:
        return decoding
    return replace(
        decoding,
        key=decoding.key if "key" in wanted else None,
        value=decoding.value if "value" in wanted else None,
    )
