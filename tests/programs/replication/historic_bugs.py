"""Bugs that Kafka and its relatives had in this protocol, each with a switch that brings it back.

    with brought_back(BUGS["KAFKA-7128"]):
        ...  # the functions of streamlog.replication now have the bug

A switch replaces the code of the functions concerned, in this process, until the block ends. Bugs
of a truncation rule need no switch: `ReplicationSettings.rule` chooses an old rule.
"""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import CodeType, FunctionType
from typing import Final, NamedTuple

from streamlog.replication import follower, isr, leader, partition_state, truncation
from tests.programs.reliability.bugs.patching import StaleBugError


class Switch(NamedTuple):
    """An edit of a function; `old` must occur in its source exactly once."""

    function: FunctionType
    old: str
    new: str


class HistoricBug(NamedTuple):
    """A bug: where it was found, and the edits that bring it back."""

    story: str
    switches: tuple[Switch, ...]


# fmt: off
BUGS: Final = {
    "KAFKA-2143": HistoricBug("an offset out of range means: delete all and restart", (
        Switch(follower.out_of_range, "leader_start_offset > end_offset", "True"),
    )),
    "KAFKA-7128": HistoricBug("a follower joins the ISR below the start of the leader's epoch", (
        Switch(isr.may_join, "max(high_watermark, epoch_start_offset)", "high_watermark"),
    )),
    "KAFKA-7414": HistoricBug("an offset out of range stops the follower", (
        Switch(follower.Follower.fetched, "answer.error is Errors.OFFSET_OUT_OF_RANGE", "False"),
    )),
    "KAFKA-7415": HistoricBug("a leader epoch without records is not noted", (
        Switch(leader.Leader.__init__,
               "log.epochs.assign(state.leader_epoch, log.log_end_offset)", "pass"),
        Switch(leader.Leader.__init__,
               "log.epochs.entries[-1].start_offset", "log.log_end_offset"),
    )),
    "KAFKA-9491": HistoricBug("the high watermark stays where it was after a full truncation", (
        Switch(follower.Follower._out_of_range, "self.high_watermark = what.restart_at", "pass"),
    )),
    "KAFKA-10432": HistoricBug("epoch 0 counts as no epoch", (
        Switch(truncation.epoch_to_ask, "latest is None", "not latest"),
    )),
    "KAFKA-10706": HistoricBug("a truncation that removes no records keeps the last epoch", (
        Switch(follower.Follower._truncate, "FollowerStep(truncate_to=offset,",
               "FollowerStep(truncate_to=offset if offset < self._log.log_end_offset else None,"),
    )),
    "KAFKA-14704": HistoricBug("a follower raises its high watermark before it truncates", (
        Switch(follower.Follower.fetched, "if answer.diverging_epoch is not None:",
               "self.high_watermark = max(self.high_watermark, min(answer.high_watermark, end))\n"
               "    if answer.diverging_epoch is not None:"),
    )),
    "KAFKA-15583": HistoricBug("the high watermark rises below min.insync.replicas (KIP-966)", (
        Switch(isr.may_raise_high_watermark, "isr_size >= min_isr", "True"),
    )),
    "KAFKA-19996": HistoricBug("below min ISR a follower joins at a stale high watermark", (
        Switch(isr.may_join, "under_min_isr and not caught_up", "False"),
    )),
    "crabka-308": HistoricBug("installing an ISR forgets how far followers had got", (
        Switch(leader.Leader.installed,
               "known.get(node, FollowerProgress())", "FollowerProgress()"),
    )),
    "KIP-966-unclean": HistoricBug("a replica that restarted uncleanly stays eligible to lead", (
        Switch(partition_state.PartitionState.with_isr, "{*isr, *unclean}", "{*isr}"),
    )),
    "higher-epochs": HistoricBug("a follower with only higher epochs keeps records up to O", (
        Switch(truncation.reaction_to, "Reaction.HIGHER_EPOCH", "Reaction.OFFSET"),
    )),
    "isr-in-flight": HistoricBug("the high watermark ignores a follower that joins", (
        Switch(leader.Leader._raise_high_watermark,
               "set(self.isr.maximal)", "set(self.isr.committed)"),
        Switch(leader.Leader._raise_high_watermark, "in self.followers if", "in () if"),
    )),
    "unfenced-epoch": HistoricBug("a leader counts the fetches of followers in another epoch", (
        Switch(leader.Leader._refusal, "self._rule.fences and epoch != UNDEFINED_EPOCH", "False"),
    )),
}
# fmt: on


@contextmanager
def brought_back(bug: HistoricBug) -> Iterator[None]:
    """Run the block with a bug.

    Raises:
        StaleBugError: The text that a switch replaces is not in its function exactly once.
    """
    with ExitStack() as stack:
        for function, source in _edited(bug.switches):
            stack.callback(setattr, function, "__code__", function.__code__)
            function.__code__ = _compiled(function, source)
        yield


def _edited(switches: tuple[Switch, ...]) -> list[tuple[FunctionType, str]]:
    sources: dict[FunctionType, str] = {}
    for function, old, new in switches:
        source = sources.get(function) or textwrap.dedent(inspect.getsource(function))
        if source.count(old) != 1:
            raise StaleBugError(f"{function.__qualname__}: not found exactly once:\n{old}")
        sources[function] = source.replace(old, new)
    return list(sources.items())


def _compiled(function: FunctionType, source: str) -> CodeType:
    tree = ast.parse(source)
    definition = tree.body[0]
    assert isinstance(definition, ast.FunctionDef)
    definition.decorator_list.clear()
    code = compile(tree, f"<{function.__qualname__} with a bug>", "exec", dont_inherit=True)
    codes = [each for each in code.co_consts if isinstance(each, CodeType)]
    return next(each for each in codes if each.co_name == function.__name__)
