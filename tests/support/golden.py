"""Access to the golden files, which Apache Kafka's own classes wrote."""

import gzip
import json
import tarfile
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


def unpack(name: str, target: Path, *only: str) -> Path:
    """Unpack an archive of `tests/golden`.

    Args:
        name: The archive, such as `C-broker/clean-log.dir.tar.gz`.
        target: The directory to unpack into.
        only: Prefixes of the paths to unpack; by default all.

    Returns:
        `target`.
    """
    with tarfile.open(GOLDEN / name) as archive:
        members = [
            member
            for member in archive.getmembers()
            if not only or any(f"{member.name}/".startswith(each) for each in only)
        ]
        archive.extractall(target, members, filter="data")
    return target
