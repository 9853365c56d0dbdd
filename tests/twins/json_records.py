"""The kernel of `streamlog.records.json_kernels` in plain Python."""

import json

from streamlog.records.columns import RecordColumns
from streamlog.records.json_objects import ESCAPED, record_object
from streamlog.topic import TopicPartition


def plain_format_records(
    columns: RecordColumns,
    partition: TopicPartition,
    *,
    encoding: str = "utf8",
    before: bytes = b"",
    after: bytes = b"\n",
) -> bytes:
    """Return what `format_records` does, in plain Python: its twin in tests."""
    out = []
    for record in columns.records():
        text = json.dumps(
            record_object(record, partition, encoding), ensure_ascii=False, separators=(",", ":")
        )
        out.append(before + text.translate(ESCAPED).encode() + after)
    return b"".join(out)
