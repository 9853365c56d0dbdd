"""Reading the golden files: what Apache Kafka's own classes wrote."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parent.parent / "golden"


def json_lines(name: str) -> list[dict[str, Any]]:
    """Return the objects of a file of JSON lines below `tests/golden`, gzipped or not."""
    path = GOLDEN / name
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [json.loads(line) for line in text.splitlines()]


def files_of(directory: Path) -> Iterator[tuple[str, bytes]]:
    """Yield name and bytes of each file in a directory, by name."""
    for path in sorted(directory.iterdir()):
        if path.is_file():
            yield path.name, path.read_bytes()
