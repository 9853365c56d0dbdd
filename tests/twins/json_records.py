"""The kernel of `streamlog.records.json_kernels` in plain Python."""

import json
from collections.abc import Collection

from streamlog.records.columns import BinaryColumn, RecordColumns
from streamlog.records.json_objects import ESCAPED, record_object
from streamlog.topic import TopicPartition


def plain_format_records(
    columns: RecordColumns,
    partition: TopicPartition,
    *,
    encoding: str = "utf8",
    before: bytes = b"",
    after: bytes = b"\n",
    written: Collection[str] = (),
    rest: BinaryColumn | None = None,
) -> bytes:
    """Return what `format_records` does, in plain Python: its twin in tests."""
    out = []
    endings = [b""] * columns.count if rest is None else [each or b"" for each in rest]
    for record, ending in zip(columns.records(), endings, strict=True):
        found = record_object(record, partition, encoding)
        parts = []
        for name, value in found.items():
            field = name.removesuffix("Base64")
            if field in written:
                parts.append((getattr(record, field) or b"").removeprefix(b","))
            else:
                shown = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
                parts.append(f'"{name}":{shown.translate(ESCAPED)}'.encode())
        text = b",".join(parts) + ending
        out.append(before + b"{" + text + b"}" + after)
    return b"".join(out)
