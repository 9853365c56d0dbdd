"""Messages of formats v0 and v1 for tests."""

from streamlog.records.record import CompressionType, Record
from tests.twins.legacy_builder import LegacyBuilder


def message_set(
    magic: int,
    records: list[Record],
    *,
    base_offset: int = 0,
    compression: CompressionType = CompressionType.NONE,
    log_append_time: int | None = None,
) -> bytes:
    """Return records as a message set."""
    builder = LegacyBuilder(
        magic,
        base_offset=base_offset,
        compression=compression,
        log_append_time=log_append_time,
    )
    for record in records:
        builder.append(record)
    return builder.build()
