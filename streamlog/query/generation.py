"""Another generation of a checkpoint: other offsets for a stopped query, the former ones kept.

Spark continues after the newest batch in `offsets` that `commits` has as well: the next batch gets
the next number and begins where the offsets of that one end. So the generation changes as a whole
when one file, `offsets/N` of the newest batch, is replaced. Batch numbers go on: a sink that counts
them, as ours and Delta's do, takes the rows that are read again as a new batch. Watermark and state
stay as they are.

Steps, each of which may be the last one before a crash:

    1. <checkpoint>.<n>.copying is made, a copy of the checkpoint
    2. it is renamed to <checkpoint>.<n>
    3. with a batch to skip, commits/N is created
    4. the checksum of Hadoop, offsets/.N.crc, is removed: a file without one is not checked
    5. offsets/N is replaced

Spark never changes a file of a checkpoint, so a copy consists of further names of the same files.
What we keep there (`streamlog.query.checkpoint_note`) is changed in place, and copied.

Source: org.apache.spark.sql.execution.streaming.checkpointing.OffsetSeqLog, MicroBatchExecution.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from streamlog.errors import (
    CorruptCheckpointError,
    FileMissingError,
    InvalidRequestError,
    StorageError,
)
from streamlog.fs.api import FileKind, FileSystem, OpenMode
from streamlog.fs.files import create_file_atomically, read_file, remove_tree, write_file_atomically
from streamlog.query.checkpoint import PlannedBatch, QueryCheckpoint
from streamlog.query.checkpoint_note import NOTES_DIRECTORY

__all__ = ["CheckpointState", "read_state", "write_generation"]

_BATCH: Final = re.compile(r"[0-9]{1,19}", re.ASCII)
_SIZE_MAX: Final = 1 << 26
_CHUNK: Final = 1 << 20
_COPYING: Final = ".copying"
_NO_BATCH: Final = -1
_FIRST_COMMIT: Final = b'v1\n{"nextBatchWatermarkMs":0}'


class CheckpointState(NamedTuple):
    """Where a query stands, as far as another generation depends on it.

    Attributes:
        path: The checkpoint's directory.
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


def read_state(fs: FileSystem, path: str) -> CheckpointState:
    """Return where a query stands.

    Args:
        fs: The file system of the checkpoint.
        path: Its directory, `checkpointLocation`.

    Raises:
        InvalidRequestError: There is no checkpoint, or the query has not planned a batch.
        CorruptCheckpointError: Its files are not what Spark writes.
    """
    found = QueryCheckpoint.find(fs, path)
    if found is None:
        raise InvalidRequestError(
            "no checkpoint of a query",
            path=path,
            expected="a checkpointLocation on a local disk",
        )
    planned = _newest(fs, found.path, "offsets")
    if planned == _NO_BATCH:
        raise InvalidRequestError(
            "the query has not planned a batch, so it has no offsets to replace",
            path=path,
            hint="start it with the option startingOffsets",
        )
    finished = _newest(fs, found.path, "commits")
    if not planned - 1 <= finished <= planned:
        raise CorruptCheckpointError(
            "offsets and commits do not belong together",
            path=found.path,
            got=f"offsets of batch {planned}, commits up to {finished}",
            expected="commits up to the newest batch, or the one before",
        )
    batch = found.planned(planned)
    if batch is None:
        raise CorruptCheckpointError("the newest batch is gone", path=found.path, got=planned)
    changed = [found.path, *(os.path.join(found.path, each) for each in ("offsets", "commits"))]
    return CheckpointState(
        path=found.path,
        planned=batch,
        before=found.planned(planned - 1),
        is_finished=finished == planned,
        has_state=fs.stat(os.path.join(found.path, "state")) is not None,
        watermark_ms=_watermark_ms(batch.header[1]),
        changed_ms=max(_mtime_ms(fs, each) for each in changed),
    )


def write_generation(
    fs: FileSystem,
    state: CheckpointState,
    batches: Mapping[int, Sequence[str]],
    *,
    skip_unfinished: bool = False,
) -> str:
    """Replace the offsets of a stopped query; durable, and complete or not at all.

    Args:
        fs: The file system of the checkpoint.
        state: Where the query stands, from `read_state`.
        batches: The new source lines of the newest batch; maybe of the one before it as well.
        skip_unfinished: Count an unfinished batch as finished.

    Returns:
        The directory of the former generation.

    Raises:
        InvalidRequestError: A batch is unfinished, or the checkpoint holds links or devices.
        StorageError: The disk refused. The checkpoint is as before, or with `skip_unfinished` the
            batch is finished.
    """
    if not state.is_finished:
        _check_skip(state, skip_unfinished=skip_unfinished)
    kept = _keep_copy(fs, state.path)
    offsets = os.path.join(state.path, "offsets")
    if not state.is_finished:
        _finish(fs, state)
    for batch in (state.before, state.planned):
        if batch is None or batch.batch_id not in batches:
            continue
        checksum = os.path.join(offsets, f".{batch.batch_id}.crc")
        if fs.stat(checksum) is not None:
            fs.remove(checksum)
            fs.sync_directory(offsets)  # it must not return beside the new content
        data = batch.data(batches[batch.batch_id])
        write_file_atomically(fs, os.path.join(offsets, str(batch.batch_id)), data)
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


def _finish(fs: FileSystem, state: CheckpointState) -> None:
    """Create the commit of the unfinished batch, with the content of the one before."""
    commits, number = os.path.join(state.path, "commits"), state.planned.batch_id
    try:
        content = read_file(fs, os.path.join(commits, str(number - 1)), max_size=_SIZE_MAX)
    except FileMissingError:
        content = _FIRST_COMMIT
    fs.make_directory(commits)
    create_file_atomically(fs, os.path.join(commits, str(number)), content)


def _keep_copy(fs: FileSystem, path: str) -> str:
    """Copy the checkpoint beside itself; durable. Return the copy."""
    number = 1
    while fs.stat(f"{path}.{number}") is not None:
        number += 1
    kept = f"{path}.{number}"
    remove_tree(fs, kept + _COPYING)  # of a process that died
    for source, target in _tree(fs, path, kept + _COPYING):
        _copy_file(fs, source, target, is_own=f"/{NOTES_DIRECTORY}/" in source[len(path) :])
    _sync_tree(fs, kept + _COPYING)
    fs.rename(kept + _COPYING, kept)
    fs.sync_directory(os.path.dirname(path))
    return kept


def _tree(fs: FileSystem, source: str, target: str) -> Iterator[tuple[str, str]]:
    """Create the directories of a copy; yield each file and its name in the copy."""
    fs.make_directory(target)
    for name in fs.list(source):
        inner, copy = os.path.join(source, name), os.path.join(target, name)
        found = fs.stat(inner)
        if found is None:
            continue
        if found.kind is FileKind.DIRECTORY:
            yield from _tree(fs, inner, copy)
        elif found.kind is FileKind.FILE:
            yield inner, copy
        else:
            raise InvalidRequestError(
                "a checkpoint holds files and directories only", path=inner, got=found.kind.value
            )


def _copy_file(fs: FileSystem, source: str, target: str, *, is_own: bool) -> None:
    if not is_own:
        try:
            fs.link(source, target)
        except FileMissingError:
            raise
        except StorageError:  # another owner, or a file system without links
            pass
        else:
            return
    with fs.open(source, OpenMode.READ) as file, fs.open(target, OpenMode.CREATE) as copy:
        position = 0
        while part := file.pread(_CHUNK, position):
            copy.pwrite(part, position)
            position += len(part)


def _sync_tree(fs: FileSystem, path: str) -> None:
    for name in fs.list(path):
        inner = os.path.join(path, name)
        found = fs.stat(inner)
        if found is not None and found.kind is FileKind.DIRECTORY:
            _sync_tree(fs, inner)
        else:
            with fs.open(inner, OpenMode.READ) as file:
                file.sync()
    fs.sync_directory(path)
