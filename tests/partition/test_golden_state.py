"""State files and producer state beside Kafka's own answers about the same directories."""

import json
from pathlib import Path
from typing import Any

import pytest

from streamlog.config.log_config import LogConfig
from streamlog.fs.local import LocalFileSystem
from streamlog.partition.epochs import LeaderEpochCache
from streamlog.partition.partition_metadata import format_partition_metadata, read_topic_id
from streamlog.partition.producer_snapshot import (
    decode_snapshot,
    encode_snapshot,
    list_snapshots,
    snapshot_file_name,
)
from streamlog.partition.producers import ProducerStateManager, within
from streamlog.records.batch import scan_batches
from streamlog.segment.filenames import parse_log_file_name
from streamlog.segment.segment import Segment

GOLDEN = Path(__file__).parents[1] / "golden" / "C-local"
CASES = sorted(path.parent.name for path in GOLDEN.glob("*/expect.json"))


class Case:
    """One golden directory, opened for reading only."""

    def __init__(self, name: str) -> None:
        self.expect: dict[str, Any] = json.loads((GOLDEN / name / "expect.json").read_text())
        [self.path] = (path for path in (GOLDEN / name).iterdir() if path.is_dir())
        self.fs = LocalFileSystem()
        names = [parse_log_file_name(path.name) for path in self.path.iterdir()]
        self.segments = [
            Segment.open(self.fs, str(self.path), base, config=LogConfig(), writable=False)
            for base in sorted(base for base in names if base is not None)
        ]

    def snapshot(self, offset: int) -> bytes:
        return (self.path / snapshot_file_name(offset)).read_bytes()

    def stable_offset(self, manager: ProducerStateManager) -> int:
        unstable = manager.first_unstable_offset
        return self.expect["logEndOffset"] if unstable is None else unstable


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return Case(request.param)


def test_there_are_cases() -> None:
    assert len(CASES) == 3


def test_replay_of_the_whole_log_gives_kafkas_producers(case: Case) -> None:
    manager = ProducerStateManager()
    manager.replay(case.segments, case.expect["logEndOffset"])
    manager.on_high_watermark(case.expect["logEndOffset"])
    found = [
        {
            "producerId": state.producer_id,
            "producerEpoch": state.producer_epoch,
            "lastSequence": state.last_sequence,
            "lastOffset": state.last_offset,
            "currentTxnFirstOffset": (
                -1 if state.current_txn_first_offset is None else state.current_txn_first_offset
            ),
            "batches": [
                [each.base_sequence, each.last_sequence, each.first_offset, each.last_offset,
                 each.timestamp]
                for each in state.batches
            ],
        }
        for _, state in sorted(manager.producers.items())
    ]  # fmt: skip
    assert found == case.expect["activeProducers"]
    assert case.stable_offset(manager) == case.expect["lastStableOffset"]


def test_load_with_snapshots_gives_the_same_stable_offset_and_last_batches(case: Case) -> None:
    loaded = ProducerStateManager.load(
        case.fs, str(case.path), segments=case.segments, log_start_offset=0,
        log_end_offset=case.expect["logEndOffset"], now_ms=0,
    )  # fmt: skip
    assert case.stable_offset(loaded) == case.expect["lastStableOffset"]
    lasts = {each["producerId"]: each["batches"][-1][:4] for each in case.expect["activeProducers"]}
    assert {
        state.producer_id: [last.base_sequence, last.last_sequence, last.first_offset,
                            last.last_offset]
        for state in loaded.producers.values()
        for last in state.batches[-1:]
    } == lasts  # fmt: skip


def test_state_at_every_snapshot_is_what_kafka_wrote_there(case: Case) -> None:
    offsets = list_snapshots(case.fs, str(case.path))
    assert len(offsets) == len(case.expect["producerSnapshots"]) > 1
    manager = ProducerStateManager()
    for offset in offsets:
        manager.replay(case.segments, offset)
        ours = encode_snapshot(manager.producers.values())
        # The order of the entries is that of a hash map there.
        assert sorted(map(facts, decode_snapshot(ours))) == sorted(
            map(facts, decode_snapshot(case.snapshot(offset)))
        )
        assert encode_snapshot(decode_snapshot(case.snapshot(offset))) == case.snapshot(offset)


def facts(state: Any) -> tuple[Any, ...]:
    first_offset = state.current_txn_first_offset
    return (
        state.producer_id, state.producer_epoch, state.batches, state.last_timestamp,
        state.coordinator_epoch, -1 if first_offset is None else first_offset,
    )  # fmt: skip


def test_aborted_transactions_are_those_of_kafkas_index(case: Case) -> None:
    manager, found = ProducerStateManager(), []
    for segment in case.segments:
        data = segment.read(0, segment.size)
        found += manager.update(within(data), scan_batches(data).table)
    assert [tuple(each) for each in found] == [
        (each["producerId"], each["firstOffset"], each["lastOffset"], each["lastStableOffset"])
        for each in case.expect["abortedTransactions"]
    ]


def test_epochs_are_kafkas_and_can_be_rebuilt_from_the_batches(case: Case) -> None:
    known = LeaderEpochCache.load(case.fs, str(case.path))
    assert [list(each) for each in known.entries] == case.expect["leaderEpochs"]
    rebuilt = LeaderEpochCache()
    for segment in case.segments:
        rebuilt.assign_from(scan_batches(segment.read(0, segment.size)).table)
    assert rebuilt == known
    for each in case.expect["endOffsetForEpoch"]:
        expected = (each.get("foundEpoch", -1), each["endOffset"])
        answer = known.end_offset_for(each["epoch"], case.expect["logEndOffset"])
        assert answer == (expected if expected[1] is not None else (-1, -1))


def test_topic_id_is_kafkas(case: Case) -> None:
    topic_id = read_topic_id(case.fs, str(case.path))
    assert topic_id is not None
    assert format_partition_metadata(topic_id).decode() == case.expect["partitionMetadata"]
