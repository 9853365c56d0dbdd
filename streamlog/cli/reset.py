"""`streamlog readers plan`, `reset` and `move`: other offsets for a stopped query."""

from typing import Any, Final

import click

from streamlog.arrow.log_view import EARLIEST, LATEST
from streamlog.arrow.views import open_read_roots
from streamlog.bucket.places import root_paths
from streamlog.cli.output import PARTITION_COLUMNS, Column, Kind, Output, remark
from streamlog.cli.verb import Settings
from streamlog.clock import SystemClock
from streamlog.errors import InvalidRequestError
from streamlog.fs.local import LocalFileSystem
from streamlog.query.checkpoint_files import CheckpointFiles
from streamlog.query.generation import read_state
from streamlog.query.offsets import parse_partition_numbers
from streamlog.root.offset_specs import parse_moment
from streamlog.root.readers import Reader
from streamlog.watch.checkpoints import files_of_checkpoint
from streamlog.watch.lag import known_readers
from streamlog.watch.reset import (
    Connector,
    ResetPlan,
    ResetTarget,
    carry_out,
    plan_move,
    plan_reset,
    signs_of_running,
)

__all__ = ["move", "plan", "reset"]

_QUIET_MS: Final = 60_000


def plan(settings: Settings, *, checkpoint: str, to: str, sources: tuple[int, ...]) -> None:
    """Print what a reset would do."""
    reset(
        settings,
        checkpoint=checkpoint,
        to=to,
        sources=sources,
        dry_run=True,
        stopped=False,
        skip_unfinished=False,
    )


def reset(
    settings: Settings,
    *,
    checkpoint: str,
    to: str,
    sources: tuple[int, ...],
    dry_run: bool,
    stopped: bool,
    skip_unfinished: bool,
) -> None:
    """Replace the offsets of a stopped query."""
    target = _target(to)
    fs, files = LocalFileSystem(), files_of_checkpoint(checkpoint)
    state = read_state(files)
    roots = open_read_roots(root_paths(settings.root, fs), fs=fs)
    planned = plan_reset(roots, state, target, sources=sources)
    _finish(
        settings,
        files,
        planned,
        known_readers(roots),
        dry_run=dry_run,
        stopped=stopped,
        skip_unfinished=skip_unfinished,
    )


def move(settings: Settings, *, checkpoint: str, to: str, dry_run: bool, stopped: bool) -> None:
    """Make a checkpoint one of the other connector, at the same offsets."""
    connector, fs, files = Connector(to), LocalFileSystem(), files_of_checkpoint(checkpoint)
    state = read_state(files)
    roots = None
    if connector is Connector.STREAMLOG or settings.path:
        roots = open_read_roots(root_paths(settings.root, fs), fs=fs)
    planned = plan_move(roots, state, connector)
    readers = [] if roots is None else known_readers(roots)
    _finish(
        settings,
        files,
        planned,
        readers,
        dry_run=dry_run,
        stopped=stopped,
        skip_unfinished=False,
    )


def _finish(
    settings: Settings,
    files: CheckpointFiles,
    planned: ResetPlan,
    readers: list[Reader],
    *,
    dry_run: bool,
    stopped: bool,
    skip_unfinished: bool,
) -> None:
    """Carry a plan out unless it is a dry run or the query seems to run; print it."""
    state = planned.state
    now_ms = SystemClock().now_ms()
    signs = signs_of_running(state, readers, now_ms=now_ms, quiet_ms=_QUIET_MS)
    if signs and not dry_run and not stopped:
        raise InvalidRequestError(
            "the query seems to run",
            path=state.path,
            got="; ".join(signs),
            expected="a stopped query",
            hint="stop it; if it is stopped, wait a minute or say so: --stopped",
        )
    kept = None
    if not dry_run:
        kept = carry_out(files, planned, skip_unfinished=skip_unfinished)
    _print(settings, planned)
    for line in planned.remarks:
        remark(settings, line)
    if kept is not None:
        remark(settings, f"batch {state.planned.batch_id + 1} is the next one; the checkpoint as it"
                         f" was: {kept}")  # fmt: skip
        return
    for sign in signs:
        remark(settings, f"the query seems to run: {sign}")
    if not state.is_finished:
        remark(settings, f"batch {state.planned.batch_id} is not finished")
    remark(settings, "dry run: nothing was changed")


def _print(settings: Settings, planned: ResetPlan) -> None:
    columns = (
        Column("source", "SOURCE", Kind.NUMBER),
        *PARTITION_COLUMNS,
        Column("currentOffset", "CURRENT-OFFSET", Kind.NUMBER),
        Column("newOffset", "NEW-OFFSET", Kind.NUMBER),
        Column("logStartOffset", "LOG-START-OFFSET", Kind.NUMBER),
        Column("logEndOffset", "LOG-END-OFFSET", Kind.NUMBER),
    )
    rows: list[dict[str, Any]] = [
        {
            "source": each.source,
            "topic": each.partition.topic,
            "partition": each.partition.partition,
            "currentOffset": each.current_offset,
            "newOffset": each.new_offset,
            "logStartOffset": each.log_start_offset,
            "logEndOffset": each.log_end_offset,
        }
        for each in planned.changes
    ]
    Output(settings).rows(rows, columns)


def _target(text: str) -> ResetTarget:
    if text in _EVERYWHERE:
        return ResetTarget(everywhere=_EVERYWHERE[text])
    if text.lstrip().startswith("{"):
        return ResetTarget(offsets=parse_partition_numbers(text, "--to", minimum=EARLIEST))
    timestamp = parse_moment(text, SystemClock().now_ms())
    if timestamp is None:
        raise click.BadParameter(
            f"expected earliest, latest, a time such as 2026-01-31T12:00Z, -2h or milliseconds "
            f'since 1970, or offsets such as {{"orders":{{"0":23}}}}, got {text!r}',
            param_hint="--to",
        )
    return ResetTarget(timestamp=timestamp)


_EVERYWHERE: Final = {"earliest": EARLIEST, "latest": LATEST}
