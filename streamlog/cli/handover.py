"""`streamlog handover`: a log root becomes a broker's log.dir, and comes back."""

from typing import TYPE_CHECKING, Any

import click

from streamlog.cli.settings import JSON_SHAPES, Settings, reading_verb

if TYPE_CHECKING:
    from streamlog.handover.plan import HandoverPlan, HandoverStep

__all__ = ["handover"]


@click.command(epilog=f"{JSON_SHAPES} Rules: streamlog/handover/HANDOVER.md.")
@click.option("--to-kafka", is_flag=True, help="Make the root the log.dir of a KRaft broker.")
@click.option("--from-kafka", is_flag=True, help="Take it back; the broker must be stopped.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@reading_verb
def handover(settings: Settings, *, to_kafka: bool, from_kafka: bool, dry_run: bool) -> None:
    """Give the log root to a Kafka broker, or take it back.

    The broker gets every topic with its id, settings, records and leader epochs, and is the one
    broker of its cluster; nobody else may write there until the root comes back. Nothing is
    changed where something speaks against it. A handover that was cut short is finished by the
    same command.

    \b
    Examples:
      streamlog --path /data/log handover --to-kafka --dry-run
      streamlog --path /data/log handover --to-kafka
      streamlog --path /data/log handover --from-kafka
    """
    if to_kafka == from_kafka:
        raise click.UsageError("say which way: --to-kafka or --from-kafka")
    import os
    from random import Random

    from streamlog.cli.output import remark
    from streamlog.cli.progress import Progress
    from streamlog.clock import SystemClock
    from streamlog.fs.local import LocalFileSystem
    from streamlog.handover.from_kafka import FromKafka
    from streamlog.handover.to_kafka import ToKafka
    from streamlog.health.verify import size_of_logs

    fs, clock, root = LocalFileSystem(), SystemClock(), os.path.abspath(settings.root)
    way: ToKafka | FromKafka
    if to_kafka:
        way = ToKafka(fs, clock, Random(), root)
        with Progress(settings, f"looking at {root}", size_of_logs(fs, root)) as progress:
            plan = way.plan(progress.advance)
    else:
        way = FromKafka(fs, clock, root)
        plan = way.plan()
    for note in plan.notes:
        remark(settings, note)
    if not dry_run:
        way.apply(plan)
    _print_steps(settings, plan, is_done=not dry_run)
    if to_kafka:
        _tell_how_to_start(settings, plan)


def _print_steps(settings: Settings, plan: "HandoverPlan", *, is_done: bool) -> None:
    from streamlog.cli.output import Column, Kind, Output, remark

    columns = (
        Column("step", "STEP", Kind.NUMBER),
        Column("what", "WHAT"),
        Column("path", "PATH"),
    )
    rows = [_row(number, step, is_done=is_done) for number, step in enumerate(plan.steps, 1)]
    Output(settings).rows(rows, columns)
    if not rows:
        remark(settings, f"nothing to do: {plan.root} is {_whose(plan)} as it is")
    elif is_done:
        remark(settings, f"handed over {plan.direction.value}: {_what_went(plan)}")


def _whose(plan: "HandoverPlan") -> str:
    from streamlog.handover.plan import Direction

    return "a broker's" if plan.direction is Direction.TO_KAFKA else "streamlog's"


def _what_went(plan: "HandoverPlan") -> str:
    from streamlog.handover.plan import Direction, StepKind

    adopts = any(step.kind is StepKind.ADOPT_TOPICS for step in plan.steps)
    if plan.direction is Direction.FROM_KAFKA and not adopts:
        return "no broker was ever started on it, its topics are as they went"
    topics = len({each.topic for each in plan.partitions})
    return f"{topics} topics with {len(plan.partitions)} partitions"


def _row(number: int, step: "HandoverStep", *, is_done: bool) -> dict[str, Any]:
    return {"step": number, "what": step.kind.value, "path": step.path, "done": is_done}


def _tell_how_to_start(settings: Settings, plan: "HandoverPlan") -> None:
    from streamlog.cli.output import remark

    node = plan.meta.node_id
    remark(settings, "the broker's server.properties must say, beside its listeners:")
    remark(settings, "  process.roles=broker,controller")
    remark(settings, f"  node.id={node}")
    remark(settings, f"  controller.quorum.voters={node}@HOST:PORT of its controller's listener")
    remark(settings, f"  log.dirs={plan.root}")
