"""Golden directories that are kept packed: what Kafka wrote, for tests that may change it."""

import tarfile
from pathlib import Path

from tests.support.golden import GOLDEN


def unpack(name: str, target: Path, *only: str) -> Path:
    """Unpack an archive below `tests/golden`.

    Args:
        name: The archive, as `C-broker/clean-log.dir.tar.gz`.
        target: The directory to unpack into.
        only: What to take of it: beginnings of paths; everything by default.

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
