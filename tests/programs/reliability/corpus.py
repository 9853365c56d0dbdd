"""A corpus of hostile bytes: one input for each known answer of a parser.

    python -m tests.programs.reliability.corpus [--seconds S]   search for more, write
        `corpus.jsonl`

A line of `corpus.jsonl` names a parser and holds the bytes and the answer: what was parsed, or the
type and the text of the error without its numbers. Of inputs with the same answer, the shortest is
kept. Tests replay all of them in seconds. Add an input that reveals a bug by hand or by a longer
search.
"""

import argparse
import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from streamlog.config.properties import parse_properties
from streamlog.errors import StreamLogError
from streamlog.fs.memory import MemoryFileSystem
from streamlog.partition.checkpoints import read_offsets
from streamlog.partition.epochs import LeaderEpochCache
from streamlog.partition.meta_properties import read_meta_properties
from streamlog.partition.partition_metadata import parse_partition_metadata
from streamlog.partition.producer_snapshot import decode_snapshot, encode_snapshot
from streamlog.partition.producer_state import ProducerState
from streamlog.records.batch import scan_batches
from streamlog.segment.segment import Segment
from streamlog.segment.txn_index import AbortedTxn
from tests.programs.reliability.kinds.damage import PARSERS, a_batch, mutate
from tests.support.segments import (
    DIRECTORY,
    config,
    dense_segment,
    memory_fs,
    read_bytes,
    write_bytes,
)

FILE: Final = Path(__file__).with_name("corpus.jsonl")
LONGEST: Final = 400  # largest input to keep
BASE: Final = 40  # the segment's base offset
BATCHES: Final = 6


class Kept(NamedTuple):
    """One line of the corpus."""

    parser: str
    data: bytes
    answer: str


# ---- parsers -----------------------------------------------------------------------------------
def _whole(name: str) -> Callable[[bytes], object]:
    """Return a parser of a file that is read on its own."""

    def parse(data: bytes) -> object:
        fs = MemoryFileSystem()
        fs.make_directory("/logs")
        write_bytes(fs, f"/logs/{name}", data)
        match name:
            case "leader-epoch-checkpoint":
                return len(LeaderEpochCache.load(fs, "/logs").entries)
            case "meta.properties":
                return read_meta_properties(fs, "/logs") is not None
        return len(read_offsets(fs, f"/logs/{name}"))

    return parse


def _beside_a_segment(suffix: str) -> Callable[[bytes], object]:
    """Return a parser of one file of a segment whose other files are sound."""

    def parse(data: bytes) -> object:
        fs = memory_fs()
        dense_segment(fs, BATCHES).close()
        write_bytes(fs, f"{DIRECTORY}/{BASE:020d}.{suffix}", data)
        segment = Segment.open(fs, DIRECTORY, BASE, config=config(), writable=True)
        if suffix == "log":
            durable = BASE + 4
            return segment.recover(durable_offset=durable, is_last=True, on_batch=None).case
        if suffix == "txnindex":
            return len(segment.aborted_transactions(BASE, BASE + 2 * BATCHES).aborted)
        offsets = range(BASE, BASE + 2 * BATCHES)
        found = [segment.translate_offset(offset) for offset in offsets]
        assert [each and each.offset for each in found] == [each - each % 2 for each in offsets]
        assert segment.offset_of_max_timestamp == offsets[-1]
        return "an index that is replaced" if segment.needs_recovery else "an index that is used"

    return parse


_SEGMENT_FILES: Final = ("log", "index", "timeindex", "txnindex")
ALL: Final[Mapping[str, Callable[[bytes], object]]] = {
    **{f"batch {parse.__name__.strip('_')}": parse for parse in PARSERS},
    "scan": lambda data: scan_batches(data).stop.name,
    **{f".{suffix}": _beside_a_segment(suffix) for suffix in _SEGMENT_FILES},
    **{
        name: _whole(name)
        for name in (
            "leader-epoch-checkpoint",
            "recovery-point-offset-checkpoint",
            "meta.properties",
        )
    },
    ".snapshot": lambda data: len(decode_snapshot(data)),
    "partition.metadata": lambda data: len(parse_partition_metadata(data, "")),
    "properties": lambda data: len(parse_properties(data.decode("latin-1"))),
}


def answer(parser: str, data: bytes) -> str:
    """Return the answer of a parser to some bytes. Untyped errors propagate."""
    try:
        found = ALL[parser](data)
    except StreamLogError as error:
        return f"{type(error).__name__}: {re.sub('-?[0-9]+', 'N', error.what)}"
    return f"{len(found)} records" if isinstance(found, list) else str(found)


def kept() -> Iterator[Kept]:
    """Yield the inputs of the corpus."""
    for line in FILE.read_text(encoding="utf-8").splitlines():
        found = json.loads(line)
        yield Kept(found["parser"], bytes.fromhex(found["data"]), found["answer"])


# ---- the search --------------------------------------------------------------------------------
def search(seconds: float, random: Random) -> list[Kept]:
    """Return the shortest input for each answer, out of the corpus and new inputs."""
    best: dict[tuple[str, str], bytes] = {}
    for each in kept() if FILE.exists() else ():
        _keep(best, each.parser, each.data)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for parser in ALL:
            _keep(best, parser, _input(parser, random))
    rows = [Kept(parser, data, found) for (parser, found), data in best.items()]
    return sorted(rows, key=lambda each: (each.parser, each.answer))


def _keep(best: dict[tuple[str, str], bytes], parser: str, data: bytes) -> None:
    if len(data) <= LONGEST:
        place = (parser, answer(parser, data))
        best[place] = min(best.get(place, data), data, key=lambda each: (len(each), each))


def _input(parser: str, random: Random) -> bytes:
    if parser == "scan" or parser.startswith("batch "):
        return mutate(a_batch(random), random)
    data = bytearray(SOUND[parser])
    for _ in range(random.choice((0, 1, 1, 2, 4))):
        at = random.randrange(len(data) + 1)
        match random.randrange(5):
            case 0 if at < len(data):
                data[at] ^= 1 << random.randrange(8)
            case 1:
                del data[at : at + random.randrange(1, 30)]
            case 2:
                data[at:at] = random.choice((b"-", b"9" * 19, b"\n", b" ", bytes(5), b"\xff", b"0"))
            case 3:
                data[at : at + 4] = random.choice((0, 1, -1, 2**31 - 1)).to_bytes(
                    4, "big", signed=True
                )
            case 4:
                data += data[at : at + random.randrange(1, 120)]
    return bytes(data)


def _sound() -> Iterator[tuple[str, bytes]]:
    """Yield a sound file for each parser."""
    fs = memory_fs()
    segment = dense_segment(fs, 3)
    segment.append_aborted(AbortedTxn(1, BASE, BASE + 1, BASE + 2))
    segment.seal()
    segment.close()
    for suffix in _SEGMENT_FILES:
        yield f".{suffix}", read_bytes(fs, f"{DIRECTORY}/{BASE:020d}.{suffix}")
    yield ".snapshot", encode_snapshot([ProducerState(7, producer_epoch=1)])
    yield "leader-epoch-checkpoint", b"0\n2\n0 0\n3 12\n"
    yield "recovery-point-offset-checkpoint", b"0\n2\norders 0 7\nevents-a 1 12\n"
    yield "meta.properties", b"version=1\nnode.id=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\n"
    yield "partition.metadata", b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n"
    yield "properties", b"# text\nflush.messages=1\na\\u0041\\=b : c\\\n d\n"


SOUND: Final = dict(_sound())


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.programs.reliability.corpus", description=__doc__
    )
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    found = search(arguments.seconds, Random(arguments.seed))
    lines = (
        json.dumps({"parser": each.parser, "data": each.data.hex(), "answer": each.answer})
        for each in found
    )
    FILE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(found)} inputs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
