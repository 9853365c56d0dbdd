"""Damage to a directory: a crash, a bad disk, an operator who copied the wrong file."""

from collections.abc import Callable
from pathlib import Path
from random import Random

__all__ = ["damage"]

OFTEN = 6


def damage(directory: Path, random: Random) -> set[str]:
    """Damage the files of a partition in one to three ways, or in none.

    Args:
        directory: The partition's directory.
        random: Draws the damage.

    Returns:
        The names of the changed files.
    """
    touched: set[str] = set()
    for _ in range(random.choice((0, 1, 1, 1, 2, 3))):
        if not any(directory.glob("*.log")):
            break
        [way] = random.choices(list(WAYS), list(WAYS.values()))
        before = _contents(directory)
        way(directory, random)
        after = _contents(directory)
        touched |= {name for name in before | after if before.get(name) != after.get(name)}
    return touched


def _contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


# ---- the log ----------------------------------------------------------------------------------
def _log(directory: Path, random: Random) -> Path:
    """Return a log file: half the time the last one, where damage is most likely."""
    logs = sorted(directory.glob("*.log"))
    return logs[-1] if not logs[1:] or random.random() < 0.5 else random.choice(logs)


def tear(directory: Path, random: Random) -> None:
    """The end of a log file never reached the disk."""
    _truncate(_log(directory, random), random)


def flip(directory: Path, random: Random) -> None:
    """Some bits of a log file are flipped."""
    _flip(_log(directory, random), random)


def zero(directory: Path, random: Random) -> None:
    """A range of a log file is zeros."""
    path = _log(directory, random)
    data = bytearray(path.read_bytes())
    start = random.randint(0, len(data))
    end = min(len(data), start + random.choice((1, 30, 500, 5000)))
    data[start:end] = bytes(end - start)
    path.write_bytes(data)


def trail(directory: Path, random: Random) -> None:
    """There are bytes after the last batch."""
    path = _log(directory, random)
    size = random.choice((1, 16, 17, 18, 60, 61, 300))
    tail = random.choice((bytes(size), random.randbytes(size), path.read_bytes()[-size:]))
    path.write_bytes(path.read_bytes() + tail)


def splice(directory: Path, random: Random) -> None:
    """A range of a log file is missing."""
    path = _log(directory, random)
    data = path.read_bytes()
    start, end = sorted(random.randint(0, len(data)) for _ in range(2))
    path.write_bytes(data[:start] + data[end:])


# ---- the files beside it ----------------------------------------------------------------------
def _beside(directory: Path, random: Random) -> Path | None:
    """Return a file that is derived from the log."""
    suffixes = (".index", ".timeindex", ".txnindex", ".snapshot")
    wanted = random.choice(suffixes)
    found = sorted(path for path in directory.iterdir() if path.suffix == wanted)
    return random.choice(found) if found else None


def lose(directory: Path, random: Random) -> None:
    """A derived file is missing."""
    if path := _beside(directory, random):
        path.unlink()


def lose_all(directory: Path, random: Random) -> None:
    """All derived files of a kind are missing."""
    if one := _beside(directory, random):
        for path in directory.glob(f"*{one.suffix}"):
            path.unlink()


def spoil(directory: Path, random: Random) -> None:
    """A derived file is truncated, has flipped bits, or is followed by zeros."""
    if path := _beside(directory, random):
        spoilt = random.choice((_truncate, _flip, _extend))
        spoilt(path, random)


def mistake(directory: Path, random: Random) -> None:
    """An index has the content of another one of its kind; in a snapshot this is undetectable."""
    path = _beside(directory, random)
    if path is not None and path.suffix != ".snapshot":
        path.write_bytes(random.choice(sorted(directory.glob(f"*{path.suffix}"))).read_bytes())


def lose_epochs(directory: Path, random: Random) -> None:
    """The file of leader epochs is missing."""
    (directory / "leader-epoch-checkpoint").unlink(missing_ok=True)


def lose_log(directory: Path, random: Random) -> None:
    """A log file is missing."""
    _log(directory, random).unlink()


def rename(directory: Path, random: Random) -> None:
    """A file has the suffix of a temporary or a deleted one."""
    path = random.choice(sorted(directory.iterdir()))
    path.rename(f"{path}{random.choice(('.deleted', '.cleaned', '.swap'))}")


def litter(directory: Path, random: Random) -> None:
    """There is a file without a log."""
    name = random.choice(
        ("00000000000000000777.index", "notes.txt", "00000000000000000005.snapshot")
    )
    (directory / name).write_bytes(random.randbytes(24))


# ---- bytes ------------------------------------------------------------------------------------
def _truncate(path: Path, random: Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: random.randint(0, len(data))])


def _flip(path: Path, random: Random) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(random.choice((1, 1, 3)) if data else 0):
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    path.write_bytes(data)


def _extend(path: Path, random: Random) -> None:
    path.write_bytes(path.read_bytes() + bytes(random.choice((1, 8, 12, 120))))


WAYS: dict[Callable[[Path, Random], None], int] = {
    tear: OFTEN,
    flip: OFTEN,
    zero: OFTEN // 2,
    trail: OFTEN,
    splice: 1,
    lose: OFTEN,
    lose_all: OFTEN // 2,
    spoil: OFTEN,
    mistake: OFTEN // 2,
    lose_epochs: 1,
    lose_log: 1,
    rename: OFTEN // 2,
    litter: 1,
}
