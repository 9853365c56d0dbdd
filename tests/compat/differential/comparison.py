"""What must be equal when both sides did the same."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from streamlog.log.producer_snapshot import decode_snapshot, encode_snapshot
from streamlog.records.record import NO_TIMESTAMP
from tests.compat.answers import MAX_TIMESTAMP

__all__ = [
    "differences",
    "files",
    "forget_what_may_differ",
    "indexes",
    "logs",
    "mend_lookups",
    "our_names",
    "told",
    "without_the_past",
]

SHOWN = 300
NO_EPOCHS = "0\n0\n"  # Kafka leaves an empty file where there has never been one
OUR_NAMES: dict[str, int | str] = {
    "IllegalArgumentException": 0,  # its cleaner, which is never asked where nothing is dirty
    "RecordTooLargeException": "MessageTooLargeError",
    "RecordBatchTooLargeException": "RecordListTooLargeError",
}


def our_names(outcomes: list[int | str]) -> list[int | str]:
    """Return what came of steps with Kafka's errors under our names."""
    return [
        OUR_NAMES.get(each, each.replace("Exception", "Error")) if isinstance(each, str) else each
        for each in outcomes
    ]


def told(answer: dict[str, Any]) -> dict[str, Any]:
    """Return what the oracle tells that we can tell, too."""
    return {key: value for key, value in answer.items() if key not in ("printed", "recoveryPoint")}


def without_the_past(told: dict[str, Any]) -> dict[str, Any]:
    """Return what is told of a log but for what records that are gone had said.

    A live log knows of producers and transactions what was said; who opens it, what is still
    there. An open transaction that began earlier makes the first batch unstable to Kafka, the first
    offset to us. Where no record is left nobody needs an epoch.
    """
    gone = {"producers", "aborted", "lastStableOffset", "committed"}
    if told["logStartOffset"] == told["logEndOffset"]:
        gone.add("leaderEpochs")
    return {key: value for key, value in told.items() if key not in gone}


def forget_what_may_differ(
    answers: dict[str, Any], *, is_exact: bool, has_same_segments: bool
) -> None:
    """Remove what need not be equal in directories that two wrote.

    Args:
        answers: What was told of one of them.
        is_exact: Whether both had the same bytes to write; else compressors made them.
        has_same_segments: Whether both began their segments at the same offsets.
    """
    del answers["topicId"]
    if not has_same_segments:
        del answers["segments"]
    elif not is_exact:
        answers["segments"] = [base for base, _ in answers["segments"]]
    for batch in answers["batches"]:
        if not is_exact and batch["compressionType"] != "none":
            del batch["size"]


def mend_lookups(theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    """Put right what Kafka says of times where it gives up, or answers without a timestamp.

    It looks into the first segment that qualifies only, and a segment without timestamps qualifies
    by the time its file was changed. The largest timestamp of a segment that was cut is to it what
    is left of the index; that it lies below the log start does not matter to it.
    """
    for time, found in ours["offsetsForTimes"].items():
        answer = theirs["offsetsForTimes"].get(time, [])
        gives_up = not answer and found and found == _first_at_or_after(int(time), ours)
        if time == str(MAX_TIMESTAMP) and answer:
            gives_up = answer[0] < ours["logStartOffset"] or (
                found and answer[1] < found[1] and found == _first_at_or_after(found[1], ours)
            )
        if gives_up or (answer[1:] == [NO_TIMESTAMP] and not found):
            theirs["offsetsForTimes"][time] = found


def _first_at_or_after(timestamp: int, ours: dict[str, Any]) -> list[int]:
    """Return offset and timestamp of the first record that is not older, by looking at all."""
    for batch in ours["batches"]:
        for record in batch["records"]:
            if record["timestamp"] >= timestamp and record["offset"] >= ours["logStartOffset"]:
                return [record["offset"], record["timestamp"]]
    return []


def files(directory: Path, *, has_indexes: bool, log_start_offset: int) -> dict[str, object]:
    """Return what the files hold that both write: bytes, producers in any order, epochs."""
    found: dict[str, object] = {**logs(directory)}
    if has_indexes:
        found |= indexes(directory)
    epochs = (directory / "leader-epoch-checkpoint").read_text()
    found["leader-epoch-checkpoint"] = epochs or NO_EPOCHS
    wanted = {int(name[:-4]) for name in logs(directory)}
    for path in sorted(directory.glob("*.snapshot")):
        if int(path.stem) in wanted and (int(path.stem) > log_start_offset or not log_start_offset):
            states = decode_snapshot(path.read_bytes())
            found[path.name] = sorted(encode_snapshot([state]) for state in states)
    return found


def logs(directory: Path) -> dict[str, bytes]:
    """Return the bytes of each log file."""
    return _bytes(directory, {".log"})


def indexes(directory: Path, log_start_offset: int = 0) -> dict[str, bytes]:
    """Return the bytes of each log's indexes; one without entries is an empty file or none.

    Of transactions only where their beginnings are in the log.
    """
    found = _bytes(directory, {".index", ".timeindex", ".txnindex"})
    stems = {path.stem for path in directory.glob("*.log")}
    return {
        name: data
        for name, data in found.items()
        if name.partition(".")[0] in stems
        and data
        and not (name.endswith(".txnindex") and log_start_offset)
    }


def _bytes(directory: Path, suffixes: Collection[str]) -> dict[str, bytes]:
    paths = (path for path in directory.iterdir() if path.suffix in suffixes)
    return {path.name: path.read_bytes() for path in paths}


def differences(what: str, theirs: object, ours: object, where: str = "") -> list[str]:
    """Return a line for each place where two values differ."""
    if theirs == ours:
        return []
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return [
            line
            for key in sorted({*theirs, *ours})
            for line in differences(what, theirs.get(key), ours.get(key), f"{where}.{key}")
        ]
    if isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        return [
            line
            for at, pair in enumerate(zip(theirs, ours, strict=True))
            for line in differences(what, *pair, f"{where}[{at}]")
        ]
    return [f"{what}{where}: Kafka {theirs!r:.{SHOWN}}, ours {ours!r:.{SHOWN}}"]
