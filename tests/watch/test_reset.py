"""Plans of a reset: which offsets, in which form, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from streamlog.arrow.log_view import EARLIEST, LATEST
from streamlog.arrow.views import open_read_roots
from streamlog.errors import InvalidRequestError
from streamlog.query.checkpoint import PlannedBatch
from streamlog.query.generation import CheckpointState
from streamlog.query.offsets import parse_source_offset
from streamlog.records.record import Record
from streamlog.root.manager import LogManager
from streamlog.root.readers import Reader
from streamlog.topic import TopicPartition
from streamlog.watch.reset import Connector, ResetTarget, plan_move, plan_reset, signs_of_running

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
NOW = 1_700_000_000_000
KAFKAS = '{"orders":{"0":4,"1":1}}'
DELTAS = (
    '{"sourceVersion":1,"reservoirId":"a","reservoirVersion":3,"index":-1,"isStartingVersion":true}'
)


@pytest.fixture
def manager(tmp_path: Path) -> Any:
    """Topic `orders` with offsets 2 to 6 of partition 0, one second apart, and 0 to 2 of 1."""
    with LogManager.open(tmp_path / "root", create=True) as opened:
        opened.create_topic("orders", 2)
        records = [Record(value=b"x", timestamp=1_000 * number) for number in range(6)]
        opened.log("orders", 0).append(records)
        opened.log("orders", 1).append(records[:2])
        opened.delete_records("orders", 0, 2)
        yield opened


def state(*sources: str, before: tuple[str, ...] | None = None, **more: Any) -> CheckpointState:
    header, names = ("v1", "{}"), (None,) * len(sources)
    return CheckpointState(
        path="/cp",
        planned=PlannedBatch(7, header, names, sources),
        before=None if before is None else PlannedBatch(6, header, names, before),
        **{"is_finished": True, "has_state": False, "watermark_ms": 0, "changed_ms": NOW} | more,
    )


def planned(manager: Any, target: ResetTarget, *sources: str, **more: Any) -> Any:
    return plan_reset(
        open_read_roots([manager.root]), state(*(sources or (KAFKAS,))), target, **more
    )


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (ResetTarget(everywhere=EARLIEST), [2, 0]),
        (ResetTarget(everywhere=LATEST), [6, 2]),
        (ResetTarget(timestamp=3_000), [3, 2]),
        (ResetTarget(timestamp=500), [2, 1]),  # in the first one, older records are deleted
        (ResetTarget(timestamp=9_000), [6, 2]),
        (ResetTarget(offsets={P0: 5}), [5, 1]),
        (ResetTarget(offsets={P0: -1, P1: -2}), [6, 0]),
    ],
)
def test_each_target_is_found_in_the_log(
    manager: Any, target: ResetTarget, expected: list[int]
) -> None:
    plan = planned(manager, target)
    assert [each.new_offset for each in plan.changes] == expected
    assert [each.current_offset for each in plan.changes] == [4, 1]
    assert plan.changes[0][4:] == (2, 6)
    (line,) = plan.batches[7]
    assert line == json.dumps(
        {"orders": dict(zip("01", expected, strict=True))}, separators=(",", ":")
    )
    assert plan.remarks == ()


@pytest.mark.parametrize("offset", [1, 7])
def test_an_offset_that_the_log_does_not_have_is_refused(manager: Any, offset: int) -> None:
    with pytest.raises(InvalidRequestError, match=r"orders-0.*2 to 6"):
        planned(manager, ResetTarget(offsets={P0: offset}))


def test_a_partition_that_the_query_does_not_read_is_refused(manager: Any) -> None:
    for partition in (TopicPartition("orders", 2), TopicPartition("clicks", 0)):
        with pytest.raises(InvalidRequestError, match=str(partition)):
            planned(manager, ResetTarget(offsets={partition: 0}))


def test_our_offsets_get_the_epochs_and_ids_of_the_log(manager: Any) -> None:
    manager.log("orders", 0).append([Record(value=b"y", timestamp=1)])
    ours = json.dumps({"$topicIds": {"orders": "A" * 22}, "orders": {"0": 4, "1": 1}})
    (line,) = planned(manager, ResetTarget(everywhere=LATEST), ours).batches[7]
    position = parse_source_offset(line)
    assert position.offsets == {P0: 7, P1: 2}
    assert position.topic_ids == {"orders": manager.describe("orders").topic_id}
    assert position.leader_epochs == {P0: 0, P1: 0}


def test_other_sources_stay_and_one_may_be_chosen(manager: Any) -> None:
    sources = (DELTAS, KAFKAS, "-", KAFKAS, '{"elsewhere":{"0":1}}')
    plan = planned(manager, ResetTarget(everywhere=EARLIEST), *sources)
    assert [each.source for each in plan.changes] == [1, 1, 3, 3]
    assert [plan.batches[7][at] for at in (0, 2, 4)] == [sources[at] for at in (0, 2, 4)]
    assert [line.split(" stays")[0] for line in plan.remarks] == [
        "source 0",
        "source 2",
        "source 4",
    ]
    plan = planned(manager, ResetTarget(everywhere=EARLIEST), *sources, sources=(3,))
    assert {each.source for each in plan.changes} == {3}
    assert plan.batches[7][1] == KAFKAS
    for others, wanted in (((DELTAS, "-"), ()), ((DELTAS, KAFKAS), (0,)), (sources[4:], ())):
        with pytest.raises(InvalidRequestError):
            planned(manager, ResetTarget(everywhere=EARLIEST), *others, sources=wanted)


def test_what_the_user_should_know_is_remarked(manager: Any) -> None:
    manager.alter_topic("orders", partitions=3)
    source = '{"gone":{"0":1},"orders":{"0":4,"1":1}}'
    given = state(source, has_state=True, watermark_ms=5)
    plan = plan_reset(open_read_roots([manager.root]), given, ResetTarget(everywhere=EARLIEST))
    assert [each.new_offset for each in plan.changes] == [None, 2, 0]
    for text, remark in zip(
        ("keeps state", "watermark stays at 5", "gone-0 does not exist", "orders-2 was added"),
        plan.remarks,
        strict=True,
    ):
        assert text in remark


def test_a_move_to_kafka_leaves_out_what_only_we_read(manager: Any) -> None:
    ours = json.dumps(
        {"$leaderEpochs/orders": {"0": 1}, "$topicId/orders": {"0": 99}, "orders": {"0": 4, "1": 1}}
    )
    plan = plan_move(None, state(ours, DELTAS, before=(ours, "-")), Connector.KAFKA)
    assert plan.batches == {7: (KAFKAS, DELTAS), 6: (KAFKAS, "-")}
    assert [(each.current_offset, each.new_offset) for each in plan.changes] == [(4, 4), (1, 1)]


def test_a_move_to_streamlog_checks_the_offsets_and_adds_what_we_read(manager: Any) -> None:
    roots = open_read_roots([manager.root])
    plan = plan_move(roots, state(KAFKAS), Connector.STREAMLOG)
    position = parse_source_offset(plan.batches[7][0])
    assert position.offsets == {P0: 4, P1: 1}
    assert position.topic_ids == {"orders": manager.describe("orders").topic_id}
    for other in ('{"orders":{"0":9,"1":1}}', '{"orders":{"0":4,"2":1}}', '{"a":{"0":4}}'):
        with pytest.raises(InvalidRequestError):
            plan_move(roots, state(other), Connector.STREAMLOG)


def test_a_fresh_change_and_a_report_are_signs_of_running() -> None:
    def reader(offset: int, age_ms: int, checkpoint: str | None = None) -> Reader:
        position = parse_source_offset({"orders": {"0": offset, "1": 1}})
        return Reader(name="r", position=position, committed_ms=NOW - age_ms, checkpoint=checkpoint)

    def signs(now_ms: int, *readers: Reader) -> list[str]:
        return signs_of_running(state(KAFKAS), readers, now_ms=now_ms, quiet_ms=60_000)

    assert signs(NOW + 59_999) == ["its checkpoint changed 60 s ago"]
    assert signs(NOW + 60_000) == []
    later = NOW + 60_000
    assert signs(later, reader(4, -59_000)) == ["reader r reported its offsets 1 s ago"]
    assert signs(later, reader(4, 0), reader(3, -59_000), reader(4, -59_000, "/cp")) == []
