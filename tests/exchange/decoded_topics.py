"""A topic of Avro values with JSON keys, some of which cannot be decoded."""

import json
from pathlib import Path
from typing import Any

from streamlog import LogManager, Record
from streamlog.arrow.decoding_arguments import DecodingArguments
from streamlog.fs.api import FileSystem
from tests.decoding.avro_schemas import encode

OLD: Any = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}
NEW: Any = {
    **OLD,
    "fields": [
        {"name": "note", "type": ["null", "string"], "default": None},
        *OLD["fields"],
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
    ],
}
NEW["fields"][-1]["default"] = None
KEY = "k STRING"


def write_schemas(place: Path, latest: Any = OLD) -> Path:
    """Write a directory of schemas, or a new latest version of the topic's."""
    place.mkdir(exist_ok=True)
    for number, schema in ((1, OLD), (2, NEW)):
        (place / f"{number}.avsc").write_text(json.dumps(schema))
    (place / "orders-value.avsc").write_text(json.dumps(latest))
    return place


def decoding(registry: Path | str, mode: str = "PERMISSIVE", **schemas: str) -> DecodingArguments:
    """Return how the topic is decoded."""
    return DecodingArguments(
        formats=("json", "avro"),
        schemas=(KEY, schemas.get("value")),
        subjects=(None, None),
        messages=(None, None),
        registry=str(registry),
        framing="confluent",
        mode=mode,
    )


def record(number: int, schema_id: int = 1) -> Record:
    """Return a record; each tenth one has a value that is no Avro, and no UTF-8."""
    row = {"id": number, "tags": ["a", 'quote "'][: number % 3], "note": "é\n", "at": number}
    value = b"\0\0\0\0%c" % schema_id + encode(OLD if schema_id == 1 else NEW, row)
    return Record(
        key=b'{"k":"%d"}' % number if number % 7 else None,
        value=b"\xff%d" % number if number % 10 == 9 else None if number % 10 == 8 else value,
        timestamp=1_700_000_000_000 + number,
    )


def fill_decoded(
    root: Path | str, first: int, count: int, schema_id: int = 1, fs: FileSystem | None = None
) -> None:
    """Append records to both partitions of `orders`."""
    with LogManager.open(root, create=True, fs=fs) as manager:
        if "orders" not in manager.topics():
            manager.create_topic("orders", 2)
        for number in (0, 1):
            log = manager.log("orders", number)
            for at in range(first, first + count, 10):
                log.append([record(each, schema_id) for each in range(at, at + 10)])
