"""`streamlog handover`: hands a log root over to a broker and takes it back."""

from typing import Any

import click

from streamlog.cli.output import Column, Kind, Output, Progress, remark
from streamlog.cli.verb import Settings
from streamlog.fs.log_root import LogRoot
from streamlog.handover.from_kafka import FromKafka
from streamlog.handover.plan import Direction, HandoverPlan, HandoverStep, StepKind
from streamlog.handover.to_kafka import ToKafka
from streamlog.health.verify import size_of_logs

__all__ = ["handover"]


def handover(settings: Settings, *, to_kafka: bool, from_kafka: bool, dry_run: bool) -> None:
    """Apply the steps of a handover, or only print them."""
    if to_kafka == from_kafka:
        raise click.UsageError("pass either --to-kafka or --from-kafka")

    root = LogRoot.at(settings.root)
    way: ToKafka | FromKafka
    if to_kafka:
        way = ToKafka(root)
        size = size_of_logs(root.fs, root.path)
        with Progress(settings, f"checking {root.path}", size) as progress:
            plan = way.plan(progress.advance)
    else:
        way = FromKafka(root)
        plan = way.plan()
    for note in plan.notes:
        remark(settings, note)
    if not dry_run:
        way.apply(plan)
    _print_steps(settings, plan, is_done=not dry_run)
    if to_kafka:
        _remark_broker_settings(settings, plan)


def _print_steps(settings: Settings, plan: HandoverPlan, *, is_done: bool) -> None:
    columns = (
        Column("step", "STEP", Kind.NUMBER),
        Column("what", "WHAT"),
        Column("path", "PATH"),
    )
    rows = [_row(number, step, is_done=is_done) for number, step in enumerate(plan.steps, 1)]
    Output(settings).rows(rows, columns)
    if not rows:
        remark(settings, f"nothing to do: {plan.root} already belongs to {_owner(plan)}")
    elif is_done:
        remark(settings, f"handed over {plan.direction.value}: {_summary(plan)}")


def _owner(plan: HandoverPlan) -> str:
    return "a broker" if plan.direction is Direction.TO_KAFKA else "streamlog"


def _summary(plan: HandoverPlan) -> str:
    adopts = any(step.kind is StepKind.ADOPT_TOPICS for step in plan.steps)
    if plan.direction is Direction.FROM_KAFKA and not adopts:
        return "no broker ran on it; its topics are unchanged"
    topics = len({each.topic for each in plan.partitions})
    return f"{topics} topics with {len(plan.partitions)} partitions"


def _row(number: int, step: HandoverStep, *, is_done: bool) -> dict[str, Any]:
    return {"step": number, "what": step.kind.value, "path": step.path, "done": is_done}


def _remark_broker_settings(settings: Settings, plan: HandoverPlan) -> None:
    node = plan.meta.node_id
    remark(settings, "the broker's server.properties must contain, besides its listeners:")
    remark(settings, "  process.roles=broker,controller")
    remark(settings, f"  node.id={node}")
    remark(settings, f"  controller.quorum.voters={node}@HOST:PORT of the controller listener")
    remark(settings, f"  log.dirs={plan.root}")
