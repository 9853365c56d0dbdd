"""`streamlog repair`: put right what can be put right without a loss."""

from typing import TYPE_CHECKING, Any

import click

from streamlog.cli.settings import JSON_SHAPES, Settings, reading_verb

if TYPE_CHECKING:
    from streamlog.health.repair import RepairStep
    from streamlog.topic import TopicPartition

__all__ = ["repair"]


@click.command(short_help="Cut torn tails, make indexes anew.", epilog=JSON_SHAPES)
@click.argument("directory", metavar="PATH", type=click.Path())
@click.option("--dry-run", is_flag=True, help="Say what would be done, and change nothing.")
@click.option(
    "--skip-damage",
    is_flag=True,
    help="Go on without damaged records; the files as they were stay as *.corrupt-N.",
)
@reading_verb
def repair(settings: Settings, *, directory: str, dry_run: bool, skip_damage: bool) -> None:
    """Do what opening for writing does: cut a torn tail, make indexes anew; and say each step.

    PATH is a log root or a partition's directory; nobody may have it open for writing. Of a root
    what lies below .streamlog is looked at first: settings, commits, readers. What is
    cut is kept beside the log as *.torn-N. Damage to records that were synced, or that sound
    ones follow, is refused: nothing of that partition is changed, and the exit code is 1. With
    --skip-damage the partition goes on without it, and sound records behind it can be read again;
    files of .streamlog that cannot be read are moved to .streamlog/damaged, and each step says what
    is lost with them.

    \b
    Examples:
      streamlog repair /tmp/log --dry-run
      streamlog repair /tmp/log/orders-0
      streamlog repair /tmp/log/orders-0 --skip-damage
    """
    import random

    from streamlog.cli.failures import Findings
    from streamlog.cli.looked_at import looked_at
    from streamlog.cli.output import Column, Kind, Output, remark
    from streamlog.clock import SystemClock
    from streamlog.errors import StreamLogError
    from streamlog.fs.local import LocalFileSystem
    from streamlog.health.findings import as_error
    from streamlog.health.repair import repair as put_right

    rows: list[dict[str, Any]] = []
    errors: list[StreamLogError] = []
    done = put_right(
        LocalFileSystem(),
        SystemClock(),
        random.Random(),
        directory,
        is_dry_run=dry_run,
        skips_damage=skip_damage,
    )
    for each in done:
        rows += [_row(each.partition, step, is_done=not dry_run) for step in each.steps]
        errors += [as_error(finding) for finding in each.left]
        if each.error is not None:
            errors.append(each.error)
    columns = (
        Column("topic", "TOPIC"),
        Column("partition", "PARTITION", Kind.NUMBER),
        Column("action", "ACTION"),
        Column("file", "FILE"),
        Column("target", "TARGET"),
        Column("size", "SIZE", Kind.NUMBER),
        Column("newSize", "NEW SIZE", Kind.NUMBER),
        Column("why", "WHY"),
    )
    Output(settings).rows(rows, columns)
    if not rows and not errors:
        seen = looked_at(LocalFileSystem(), directory)
        remark(settings, f"{directory}: nothing to repair; looked at {seen}")
    if dry_run and rows:
        how = f"{directory} --skip-damage" if skip_damage else directory
        remark(settings, f"nothing was changed; do it with: streamlog repair {how}")
    if errors:
        raise Findings(errors)


def _row(
    partition: "TopicPartition | None", step: "RepairStep", *, is_done: bool
) -> dict[str, Any]:
    change = step.change
    return {
        "topic": None if partition is None else partition.topic,
        "partition": None if partition is None else partition.partition,
        "action": change.kind.value,
        "file": change.path,
        "target": change.target,
        "size": change.size,
        "newSize": change.new_size,
        "why": step.why,
        "done": is_done,
    }
