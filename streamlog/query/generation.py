"""Another generation of a checkpoint: other offsets for a stopped query, the former ones kept.

Spark continues after the newest batch in `offsets` that `commits` has as well: the next batch gets
the next number and begins where the offsets of that one end. So the generation changes as a whole
when one file, `offsets/N` of the newest batch, is replaced. Batch numbers go on: a sink that counts
them, as ours and Delta's do, takes the rows that are read again as a new batch. Watermark and state
stay as they are.

Steps, each of which may be the last one before a crash:

    1. the checkpoint is copied to <checkpoint>.<n> (`streamlog.query.checkpoint_files`)
    2. with a batch to skip, commits/N is created
    3. the checksum of Hadoop, offsets/.N.crc, is removed: a file without one is not checked
    4. offsets/N is replaced

Source: org.apache.spark.sql.execution.streaming.checkpointing.OffsetSeqLog, MicroBatchExecution.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from streamlog.errors import CorruptCheckpointError, FileMissingError, InvalidRequestError
from streamlog.fs.api import FileKind, FileSystem
from streamlog.fs.files import read_file
from streamlog.query.checkpoint import PlannedBatch, QueryCheckpoint
from streamlog.query.checkpoint_files import CheckpointFiles

__all__ = ["CheckpointState", "read_state", "write_generation"]

_BATCH: Final = re.compile(r"[0-9]{1,19}", re.ASCII)
_SIZE_MAX: Final = 1 << 26
_NO_BATCH: Final = -1
_FIRST_COMMIT: Final = b'v1\n{"nextBatchWatermarkMs":0}'


class CheckpointState(NamedTuple):
    """Where a query stands, as far as another generation depends on it.

    Attributes:
        path: The checkpoint's directory, or its URL.
        planned: The newest batch that was planned.
        before: The batch before it, None if Spark has removed it.
        is_finished: Whether the newest batch is finished.
        has_state: Whether the query keeps state (aggregations, joins, deduplication).
        watermark_ms: Its watermark, 0 without one.
        changed_ms: Time of the last change by Spark, in milliseconds since 1970.
    """

    path: str
    planned: PlannedBatch
    before: PlannedBatch | None
    is_finished: bool
    has_state: bool
    watermark_ms: int
    changed_ms: int


def read_state(files: CheckpointFiles) -> CheckpointState:
    """Return where a query stands.

    Args:
        files: Its checkpoint.

    Raises:
        InvalidRequestError: There is no checkpoint, or the query has not planned a batch.
        CorruptCheckpointError: Its files are not what Spark writes.
        StorageError: They cannot be read.
    """
    fs, path = files.fs, files.path
    metadata = fs.stat(os.path.join(path, "metadata"))  # written before the first batch
    if metadata is None or metadata.kind is not FileKind.FILE:
        raise InvalidRequestError(
            "no checkpoint of a query", path=path, expected="the checkpointLocation of a query"
        )
    planned = _newest(fs, path, "offsets")
    if planned == _NO_BATCH:
        raise InvalidRequestError(
            "the query has not planned a batch, so it has no offsets to replace",
            path=path,
            hint="start it with the option startingOffsets",
        )
    finished = _newest(fs, path, "commits")
    if not planned - 1 <= finished <= planned:
        raise CorruptCheckpointError(
            "offsets and commits do not belong together",
            path=path,
            got=f"offsets of batch {planned}, commits up to {finished}",
            expected="commits up to the newest batch, or the one before",
        )
    checkpoint = QueryCheckpoint(fs, path)
    batch = checkpoint.planned(planned)
    if batch is None:
        raise CorruptCheckpointError("the newest batch is gone", path=path, got=planned)
    changing = ("", "offsets", "commits", f"offsets/{planned}", f"commits/{finished}")
    return CheckpointState(
        path=path,
        planned=batch,
        before=checkpoint.planned(planned - 1),
        is_finished=finished == planned,
        has_state=fs.stat(os.path.join(path, "state")) is not None,
        watermark_ms=_watermark_ms(batch.header[1]),
        changed_ms=max(_mtime_ms(fs, os.path.join(path, each)) for each in changing),
    )


def write_generation(
    files: CheckpointFiles,
    state: CheckpointState,
    batches: Mapping[int, Sequence[str]],
    *,
    skip_unfinished: bool = False,
) -> str:
    """Replace the offsets of a stopped query; durable, and complete or not at all.

    Args:
        files: The checkpoint.
        state: Where the query stands, from `read_state`.
        batches: The new source lines of the newest batch; maybe of the one before it as well.
        skip_unfinished: Count an unfinished batch as finished.

    Returns:
        The directory, or the URL, of the former generation.

    Raises:
        InvalidRequestError: A batch is unfinished, or the checkpoint holds links or devices.
        StorageError: The disk or the store refused. The checkpoint is as before, or with
            `skip_unfinished` the batch is finished.
    """
    if not state.is_finished:
        _check_skip(state, skip_unfinished=skip_unfinished)
    kept = files.keep_copy()
    if not state.is_finished:
        _finish(files, state)
    for batch in (state.before, state.planned):
        if batch is None or batch.batch_id not in batches:
            continue
        files.remove(f"offsets/.{batch.batch_id}.crc")  # for good, before the content changes
        files.replace(f"offsets/{batch.batch_id}", batch.data(batches[batch.batch_id]))
    return kept


# ---- reading ------------------------------------------------------------------------------------
def _newest(fs: FileSystem, checkpoint: str, kind: str) -> int:
    try:
        names = fs.list(os.path.join(checkpoint, kind))
    except FileMissingError:
        return _NO_BATCH
    return max((int(name) for name in names if _BATCH.fullmatch(name)), default=_NO_BATCH)


def _watermark_ms(settings: str) -> int:
    try:
        found = json.loads(settings).get("batchWatermarkMs", 0)
    except (ValueError, AttributeError, RecursionError):
        return 0
    return found if type(found) is int else 0


def _mtime_ms(fs: FileSystem, path: str) -> int:
    found = fs.stat(path)
    return 0 if found is None else found.mtime_ms


# ---- writing ------------------------------------------------------------------------------------
def _check_skip(state: CheckpointState, *, skip_unfinished: bool) -> None:
    what = f"batch {state.planned.batch_id} is planned but not finished"
    if not skip_unfinished:
        raise InvalidRequestError(
            f"{what}: the query runs, or was stopped in the middle, and its sink may have the rows",
            path=state.path,
            hint="start the query until it has finished the batch, and stop it; or count the batch "
            "as finished: --skip-unfinished",
        )
    if state.has_state:
        raise InvalidRequestError(
            f"{what}, and the query keeps state that only the batch itself can continue",
            path=state.path,
            hint="start the query until it has finished the batch, and stop it",
        )


def _finish(files: CheckpointFiles, state: CheckpointState) -> None:
    """Create the commit of the unfinished batch, with the content of the one before."""
    number = state.planned.batch_id
    before = os.path.join(files.path, "commits", str(number - 1))
    try:
        content = read_file(files.fs, before, max_size=_SIZE_MAX)
    except FileMissingError:
        content = _FIRST_COMMIT
    files.create(f"commits/{number}", content)
