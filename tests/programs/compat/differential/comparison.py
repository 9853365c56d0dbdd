"""What must be equal after both sides executed the same script."""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from streamlog.partition.producer_snapshot import decode_snapshot, encode_snapshot
from streamlog.records.record import NO_TIMESTAMP
from tests.programs.compat.answers import MAX_TIMESTAMP
from tests.programs.compat.differential.script import Step

__all__ = [
    "differences",
    "files",
    "forget_producers_that_are_gone",
    "forget_transactions_that_are_gone",
    "forget_what_may_differ",
    "indexes",
    "logs",
    "mend_counts",
    "mend_lookups",
    "mend_stable_offset",
    "our_names",
    "told",
    "without_empty_epochs",
]

SHOWN = 300
OUR_NAMES = {
    "RecordTooLargeException": "MessageTooLargeError",
    "RecordBatchTooLargeException": "RecordListTooLargeError",
}


def our_names(steps: list[Step], outcomes: list[int | str]) -> list[int | str]:
    """Return the outcomes of steps with Kafka's errors translated to our names.

    Kafka never calls its cleaner without dirty records, and it would throw; ours writes nothing.
    """
    return [
        0
        if (step["do"], outcome) == ("clean", "IllegalArgumentException")
        else OUR_NAMES.get(outcome, outcome.replace("Exception", "Error"))
        if isinstance(outcome, str)
        else outcome
        for step, outcome in zip(steps, outcomes, strict=True)
    ]


def mend_counts(steps: list[Step], theirs: list[int | str], ours: list[int | str]) -> None:
    """Adjust Kafka's counts of records written by rounds once an ABORT is below the log start.

    Kafka's cleaner reads a segment from its beginning, but searches aborted transactions only from
    the log start on. So it treats a transaction that ended below as committed, and its marker ends
    nothing.
    """
    aborted: list[int] = []
    log_start_offset = 0
    for at, (step, outcome) in enumerate(zip(steps, ours, strict=True)):
        if isinstance(outcome, str):
            continue
        if step["do"] == "delete":
            log_start_offset = outcome
        elif step.get("marker") == "ABORT":
            aborted.append(outcome)
        elif step["do"] == "clean" and any(each < log_start_offset for each in aborted):
            theirs[at] = outcome


def told(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the facts of the oracle's answer that ours has too."""
    return {key: value for key, value in answer.items() if key not in ("printed", "recoveryPoint")}


def mend_stable_offset(theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    """Adjust Kafka's answer for an open transaction that began below the log start.

    For Kafka, the first batch from the log start on is unstable, wherever it begins; for us the log
    start is.
    """
    begins = [batch["baseOffset"] for batch in ours["batches"][:1]]
    if ours["lastStableOffset"] == ours["logStartOffset"] and begins == [
        theirs["lastStableOffset"]
    ]:
        theirs["lastStableOffset"] = ours["lastStableOffset"]


def forget_producers_that_are_gone(theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    """Remove facts about producers that no remaining batch of the log states.

    A live log knows the facts of batches below the log start, and so do our snapshots; a reader of
    the remaining batches does not.
    """
    gone = {
        producer["producerId"]
        for told in (theirs, ours)
        for producer in told["producers"]
        if producer["producerEpoch"]
        not in [each["producerEpoch"] for each in _batches_of(producer, told["batches"])]
    }
    for told in (theirs, ours):
        told["producers"] = [
            _as_left(producer, _batches_of(producer, told["batches"]))
            for producer in told["producers"]
            if producer["producerId"] not in gone
        ]


def forget_transactions_that_are_gone(theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    """Remove facts that depend on transactions whose beginning the log no longer holds.

    Kafka recovers them from the remaining batches; ours are the original ones. If one side alone
    knows of an open transaction, the records after it are unstable to that side only; otherwise the
    same records are committed.
    """
    start = ours["logStartOffset"]
    producers = theirs["producers"] + ours["producers"]
    is_open = any(-1 < each["currentTxnFirstOffset"] < start for each in producers)
    for told in (theirs, ours):
        del told["aborted"]
        if is_open:
            del told["lastStableOffset"], told["committed"]


def _batches_of(producer: dict[str, Any], batches: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the batches that state something about a producer; one without its marker does not."""
    its = [each for each in batches if each["producerId"] == producer["producerId"]]
    return [each for each in its if each["records"] or not each["isControl"]]


def _as_left(producer: dict[str, Any], batches: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the state of a producer according to these batches alone.

    The coordinator epoch is omitted, because a missing marker may have stated it.
    """
    left = {**producer, "coordinatorEpoch": None}
    if all(each["isControl"] for each in batches):
        left |= {"lastSequence": -1, "lastOffset": -1}
    if left["currentTxnFirstOffset"] >= 0:
        left["currentTxnFirstOffset"] = max(left["currentTxnFirstOffset"], batches[0]["baseOffset"])
    return left


def without_empty_epochs(told: dict[str, Any]) -> dict[str, Any]:
    """Start epochs at their first record, and omit those without records.

    One side may have started an epoch earlier: Kafka records the epoch of an append that it then
    refuses as larger than a segment; ours starts one where records may be lost, and where a
    truncation leaves only records below the log start. Without a list of batches, epochs reach to
    the end.
    """
    begin, end = told["logStartOffset"], told["logEndOffset"]
    epochs = [each for each in told["leaderEpochs"] if max(begin, each[1]) < end]
    if "batches" in told:
        epochs = [
            [epoch, max(start, min(begins)), end]
            for epoch, start, end in epochs
            if (begins := _begins_between(start, end, told["batches"]))
        ]
    return {**told, "leaderEpochs": epochs}


def _begins_between(start: int, end: int, batches: list[dict[str, Any]]) -> list[int]:
    return [each["baseOffset"] for each in batches if start <= each["lastOffset"] < end]


def forget_what_may_differ(
    answers: dict[str, Any], *, is_exact: bool, has_same_segments: bool
) -> None:
    """Remove facts that may differ in directories of two writers.

    Args:
        answers: The answers about one of them.
        is_exact: Whether both had the same bytes to write; otherwise compressors made them.
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
    """Adjust Kafka's answers to searches by time where it gives up, or omits the timestamp.

    It searches only the first qualifying segment, and a segment without timestamps qualifies by its
    file's modification time. In a truncated segment, it takes the largest timestamp from the
    remaining index entries, even if that record lies below the log start.
    """
    for time, found in ours["offsetsForTimes"].items():
        answer = theirs["offsetsForTimes"].get(time, [])
        if time == str(MAX_TIMESTAMP):
            gives_up = found == _latest(ours) and (
                not answer or answer[0] < ours["logStartOffset"] or answer[1:] < found[1:]
            )
        else:
            gives_up = not answer and found == _first_at_or_after(int(time), ours)
        if gives_up or (answer[1:] == [NO_TIMESTAMP] and not found):
            theirs["offsetsForTimes"][time] = found


def _latest(ours: dict[str, Any]) -> list[int]:
    """Return offset and timestamp of the first record with the largest timestamp."""
    dated = [each for each in _from_start(ours) if each["timestamp"] != NO_TIMESTAMP]
    first = max(dated, key=lambda record: record["timestamp"], default=None)
    return [] if first is None else [first["offset"], first["timestamp"]]


def _first_at_or_after(timestamp: int, ours: dict[str, Any]) -> list[int]:
    """Return offset and timestamp of the first record that is not older, by a full scan."""
    for record in _from_start(ours):
        if record["timestamp"] >= timestamp:
            return [record["offset"], record["timestamp"]]
    return []


def _from_start(ours: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the records from the log start on; the first batch may have earlier ones."""
    for batch in ours["batches"]:
        yield from (each for each in batch["records"] if each["offset"] >= ours["logStartOffset"])


def files(
    directory: Path, *, has_indexes: bool, log_start_offset: int, log_end_offset: int
) -> dict[str, object]:
    """Return the content of files that both write: bytes, producers in any order, epochs.

    Kafka opens a log without records from its start on without an epoch; ours keeps the latest.
    """
    found: dict[str, object] = {**logs(directory)}
    if has_indexes:
        found |= indexes(directory)
    checkpoint = directory / "leader-epoch-checkpoint"  # Kafka writes one without epochs, too
    epochs = checkpoint.read_text().splitlines()[2:] if checkpoint.exists() else []
    starts = (max(log_start_offset, int(each.split()[1])) for each in epochs)
    begun = [each for each, start in zip(epochs, starts, strict=True) if start < log_end_offset]
    found["leader-epoch-checkpoint"] = begun
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
    """Return the bytes of each log's indexes; one without entries is an empty file or missing.

    Of transaction indexes, only entries whose transactions begin in the log.
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
