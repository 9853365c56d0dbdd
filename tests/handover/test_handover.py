"""Handing a root over and taking it back: what goes along, what is refused, and every crash."""

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from streamlog.clock import ManualClock
from streamlog.commits.identity import PRODUCER_ID_BASE
from streamlog.commits.replay import Verdict
from streamlog.errors import (
    CorruptDataError,
    InconsistentTopicIdError,
    InvalidRequestError,
    StreamLogError,
    UnavailableError,
)
from streamlog.fs.api import FileSystem, OpenMode
from streamlog.fs.files import make_directories, write_file_atomically
from streamlog.fs.local import LocalFileSystem
from streamlog.fs.log_root import LogRoot
from streamlog.fs.memory import MemoryFileSystem
from streamlog.gateway.groups.consumer_member import ConsumerMember
from streamlog.gateway.groups.consumer_state import ConsumerGroupState
from streamlog.handover.plan import StepKind
from streamlog.handover.to_kafka import OLDEST_BROKER, ToKafka
from streamlog.partition.meta_properties import read_meta_properties, write_meta_properties
from streamlog.partition.partition_metadata import read_topic_id, write_topic_id
from streamlog.protocol.metadata_records import (
    GROUP_RESOURCE,
    NO_LEADER,
    TOPIC_RESOURCE,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecordType,
    OtherRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from streamlog.records.builder import BatchBuilder
from streamlog.records.record import Record
from streamlog.root.group_configs import read_group_configs, write_group_configs
from streamlog.root.manager import LogManager
from tests.support.commits import LOG, NOW, ROOT, TOPIC, Scene, reach, rows_of, values_in
from tests.support.golden import unpack
from tests.support.handover import (
    CLOCK,
    begin_transactions,
    bootstrap_records,
    from_kafka,
    metadata_log,
    play_broker,
    to_kafka,
)

STATE = LogRoot.at(ROOT).moved_state
BROKERS = [b"the broker's 0", b"the broker's 1"]
FOREIGN_ID = "TAN-wWuiqYB18BSJ26qtIw"


def root_with(scene: Scene, versions: int = 2) -> FileSystem:
    """Return a root with commits, the last of them decided and not retired; nobody has it open."""
    for version in range(versions):
        scene.commit(version)
    scene.manager.close()
    return scene.fs


def snapshot_of(fs: FileSystem, path: str = "/") -> dict[str, bytes]:
    """Return all files but lock files, which who looks may leave behind."""
    found: dict[str, bytes] = {}
    for name in fs.list(path):
        inner = f"{path.rstrip('/')}/{name}"
        try:
            found |= snapshot_of(fs, inner)
        except StreamLogError:
            if "/locks/" not in inner:
                with fs.open(inner, OpenMode.READ) as file:
                    found[inner] = file.pread(1 << 24, 0)
    return found


def open_root(fs: FileSystem) -> LogManager:
    return LogManager.open(ROOT, fs=fs, clock=CLOCK, random=Random(3))


def of_kind(records: Sequence[Any], kind: type) -> list[Any]:
    return [each for each in records if isinstance(each, kind)]


# ---- to Kafka -------------------------------------------------------------------------------
def test_a_broker_is_told_of_topics_partitions_and_settings_in_force() -> None:
    scene = Scene(configs={"retention.ms": "-1"})
    fs = root_with(scene)
    write_file_atomically(fs, LogRoot.at(ROOT).server_properties, b"log.index.interval.bytes=512\n")
    meta = read_meta_properties(fs, ROOT)
    assert meta is not None and meta.directory_id is not None
    to_kafka(fs)
    topic_id = read_topic_id(fs, f"{ROOT}/{TOPIC}-0")
    assert bootstrap_records(fs) == [
        FeatureLevelRecord("metadata.version", OLDEST_BROKER),
        TopicRecord(TOPIC, topic_id or ""),
        ConfigRecord(TOPIC_RESOURCE, TOPIC, "index.interval.bytes", "512"),
        ConfigRecord(TOPIC_RESOURCE, TOPIC, "retention.ms", "-1"),
        *(
            PartitionRecord(topic_id or "", at, (1,), NO_LEADER, 0, (meta.directory_id,))
            for at in (0, 1)
        ),
        ProducerIdsRecord(0),
    ]


def with_consumer_group(scene: Scene) -> None:
    """Write the records of a group of KIP-848 with a member."""
    state = ConsumerGroupState("billing", epoch=1, target_epoch=1)
    state.members["a"] = ConsumerMember("a", topics=("orders",), epoch=1)
    scene.manager.create_topic("__consumer_offsets", 1)
    log = scene.manager.log("__consumer_offsets", 0)
    log.append([Record(key, value) for key, value in state.creation()])


def test_a_broker_gets_the_features_that_consumer_groups_need() -> None:
    scene = Scene()
    with_consumer_group(scene)
    fs = root_with(scene)
    plan = to_kafka(fs)
    assert of_kind(bootstrap_records(fs), FeatureLevelRecord) == [
        FeatureLevelRecord("metadata.version", 22),
        FeatureLevelRecord("group.version", 1),
    ]
    assert any("Kafka 4.0 or later" in note for note in plan.notes)


def test_consumer_groups_that_are_gone_need_no_feature() -> None:
    scene = Scene()
    with_consumer_group(scene)
    gone = ConsumerGroupState("billing", members={"a": ConsumerMember("a")}).tombstones()
    log = scene.manager.log("__consumer_offsets", 0)
    log.append([Record(key, value) for key, value in gone])
    fs = root_with(scene)
    assert not any("Kafka 4.0" in note for note in to_kafka(fs).notes)
    features = of_kind(bootstrap_records(fs), FeatureLevelRecord)
    assert features == [FeatureLevelRecord("metadata.version", OLDEST_BROKER)]


def test_settings_of_groups_go_along_and_come_back() -> None:
    scene = Scene()
    fs = root_with(scene)
    key = "consumer.session.timeout.ms"
    write_group_configs(LogRoot.at(ROOT, fs=fs), {"a": {key: "50000"}, "b": {key: "55000"}})
    to_kafka(fs)
    told = [ConfigRecord(GROUP_RESOURCE, "a", key, "50000")]
    told += [ConfigRecord(GROUP_RESOURCE, "b", key, "55000")]
    configs = of_kind(bootstrap_records(fs), ConfigRecord)
    assert [each for each in configs if each.resource_type == GROUP_RESOURCE] == told
    changed = [ConfigRecord(GROUP_RESOURCE, "a", key, "60000")]
    changed += [ConfigRecord(GROUP_RESOURCE, "b", key, None)]
    changed += [ConfigRecord(GROUP_RESOURCE, "c", "share.session.timeout.ms", "45000")]
    play_broker(fs, more=changed)
    from_kafka(fs)
    assert read_group_configs(LogRoot.at(ROOT, fs=fs)) == {
        "a": {key: "60000"},
        "c": {"share.session.timeout.ms": "45000"},
    }


def test_nothing_of_ours_is_left_in_the_root_and_the_broker_must_look_at_everything() -> None:
    fs = root_with(Scene())
    to_kafka(fs)
    names = set(fs.list(ROOT))
    assert names >= {"meta.properties", "bootstrap.checkpoint", f"{TOPIC}-0", f"{TOPIC}-1"}
    assert not names & {".streamlog", ".kafka_cleanshutdown", "recovery-point-offset-checkpoint"}
    assert fs.stat(f"{STATE}/server.properties") is not None
    assert fs.list(f"{STATE}/commits/pending") == []


def test_decided_commits_are_applied_first() -> None:
    scene, _ = reach("decided")
    scene.manager.close()
    plan = to_kafka(scene.fs)
    assert any("decided but not retired" in note for note in plan.notes)
    assert rows_of(1, 0)[0] in values_in(scene.fs, f"{ROOT}/{TOPIC}-0")


def test_the_broker_gives_no_producer_an_id_that_is_in_the_log() -> None:
    scene = Scene()
    for producer_id in (41, 7, PRODUCER_ID_BASE + 5):
        builder = BatchBuilder(producer_id=producer_id, producer_epoch=0, base_sequence=0)
        builder.append(Record(None, b"value", timestamp=NOW))
        scene.manager.log(TOPIC, 1).append_as_leader(builder.build())
    scene.manager.close()
    to_kafka(scene.fs)
    assert of_kind(bootstrap_records(scene.fs), ProducerIdsRecord) == [ProducerIdsRecord(42)]


def test_a_topic_that_retention_would_shorten_is_told_of() -> None:
    fs = root_with(Scene(configs={"retention.ms": "1000"}))
    plan = ToKafka(LogRoot(ROOT, fs, ManualClock(NOW + 100_000), Random(1))).plan()
    assert [note for note in plan.notes if "retention.ms" in note]


def told_of_transactions(fs: FileSystem) -> list[str]:
    return [note for note in plan_notes(fs) if "transaction" in note]


def test_open_transactions_are_told_of_with_the_commands_that_end_them() -> None:
    fs = root_with(Scene())
    assert told_of_transactions(fs) == []
    begun = begin_transactions(fs, f"{ROOT}/{TOPIC}-1", 3)
    what, *commands = told_of_transactions(fs)
    assert f"{TOPIC}-1 has 3 open transactions: " in what and f"offset {begun[0]} until" in what
    which = f"abort --topic {TOPIC} --partition 1 --start-offset"
    assert [each.partition("HOST:PORT ")[2] for each in commands] == [
        f"{which} {offset}" for offset in begun
    ]


def test_only_some_of_many_open_transactions_are_told_of_one_by_one() -> None:
    fs = root_with(Scene())
    begin_transactions(fs, f"{ROOT}/{TOPIC}-1", 23)
    *commands, last = told_of_transactions(fs)[1:]
    assert len(commands) == 20
    assert "and 3 more" in last and f"describe-producers --topic {TOPIC} --partition 1" in last


def test_where_a_transaction_began_that_lost_its_beginning_is_the_brokers_to_say() -> None:
    fs = root_with(Scene())
    _, second = begin_transactions(fs, f"{ROOT}/{TOPIC}-1", 2)
    with open_root(fs) as manager:
        manager.log(TOPIC, 1).delete_records(second)
    what, command, last = told_of_transactions(fs)
    assert f"offset {second} until" in what and command.endswith(f"--start-offset {second}")
    assert "and 1 more" in last


def plan_notes(fs: FileSystem) -> tuple[str, ...]:
    return ToKafka(LogRoot(ROOT, fs, CLOCK, Random(1))).plan().notes


def test_planning_changes_nothing() -> None:
    fs = root_with(Scene())
    before = snapshot_of(fs)
    plan = ToKafka(LogRoot(ROOT, fs, CLOCK, Random(1))).plan()
    assert [step.kind for step in plan.steps][-1] is StepKind.MOVE_OUT
    assert len(plan.partitions) == 2
    assert snapshot_of(fs) == before


def test_the_same_again_has_nothing_to_do() -> None:
    fs = root_with(Scene())
    to_kafka(fs)
    before = snapshot_of(fs)
    assert to_kafka(fs).steps == ()
    assert snapshot_of(fs) == before


# ---- from Kafka -----------------------------------------------------------------------------
def test_what_the_broker_appended_is_read_and_written_on() -> None:
    fs = root_with(Scene())
    to_kafka(fs)
    play_broker(fs, values=2)
    from_kafka(fs)
    with open_root(fs) as manager:
        log = manager.log(TOPIC, 0)
        epoch = log.leader_epoch
        assert log.append([Record(None, b"ours", timestamp=NOW)]).base_offset == 14
    assert epoch >= 1
    rows = rows_of(0, 0) + rows_of(1, 0)
    assert values_in(fs, f"{ROOT}/{TOPIC}-0") == [*rows, *BROKERS, b"ours"]
    assert fs.stat(f"{ROOT}/__cluster_metadata-0") is None
    assert fs.stat(f"{ROOT}/bootstrap.checkpoint") is None
    assert fs.stat(STATE) is None


@pytest.mark.parametrize("values", [0, 2])
def test_the_first_writer_starts_an_epoch_that_the_broker_never_had(values: int) -> None:
    fs = root_with(Scene())
    to_kafka(fs)
    play_broker(fs, values=values)
    from_kafka(fs)
    with open_root(fs) as manager:
        log = manager.log(TOPIC, 0)
        log.append([Record(None, b"ours", timestamp=NOW)])
        entries = [(0, 0), (1, 12), (2, 14)] if values else [(0, 0), (2, 12)]
        assert [tuple(each) for each in log.leader_epochs.entries] == entries


def test_what_was_committed_is_still_known_to_be() -> None:
    fs = root_with(Scene())
    to_kafka(fs)
    play_broker(fs, values=2)
    from_kafka(fs)
    after = Scene(fs)
    assert after.commit(1).verdict is Verdict.REPLAY
    after.commit(2)
    assert after.values(0) == [*rows_of(0, 0), *rows_of(1, 0), *BROKERS, *rows_of(2, 0)]


def test_a_root_whose_broker_never_started_comes_back_as_it_was() -> None:
    fs = root_with(Scene())
    to_kafka(fs)
    kinds = [step.kind for step in from_kafka(fs).steps]
    assert kinds == [StepKind.START_EPOCHS, StepKind.MOVE_IN, StepKind.FORGET_FIRST_START]
    with open_root(fs) as manager:
        assert manager.topics() == [TOPIC]
    assert values_in(fs, f"{ROOT}/{TOPIC}-1") == rows_of(0, 1) + rows_of(1, 1)


def test_topics_that_the_broker_made_changed_and_deleted_are_taken_over() -> None:
    scene = Scene(configs={"retention.ms": "5", "flush.ms": "9"})
    fs = root_with(scene)
    with open_root(fs) as manager:
        manager.create_topic("gone")
    write_file_atomically(fs, LogRoot.at(ROOT).server_properties, b"log.index.interval.bytes=512\n")
    to_kafka(fs)
    [gone] = [e.topic_id for e in of_kind(bootstrap_records(fs), TopicRecord) if e.name == "gone"]
    play_broker(
        fs_without(fs, "gone-0"),
        more=[
            RemoveTopicRecord(gone),
            TopicRecord("made", FOREIGN_ID),
            PartitionRecord(FOREIGN_ID, 0, (1,), 1, 0, (FOREIGN_ID,)),
            ConfigRecord(TOPIC_RESOURCE, "made", "cleanup.policy", "compact"),
            ConfigRecord(TOPIC_RESOURCE, "made", "remote.storage.enable", "true"),
            ConfigRecord(TOPIC_RESOURCE, TOPIC, "retention.ms", "6"),
            ConfigRecord(TOPIC_RESOURCE, TOPIC, "flush.ms", None),
        ],
    )
    make_directories(fs, f"{ROOT}/made-0")
    write_topic_id(fs, f"{ROOT}/made-0", FOREIGN_ID)
    plan = from_kafka(fs)
    assert [note for note in plan.notes if "remote.storage.enable" in note]
    with open_root(fs) as manager:
        assert manager.topics() == ["made", TOPIC]
        assert manager.describe("made").topic_id == FOREIGN_ID
        assert manager.topic_config("made").cleanup_policy == {"compact"}
        own = {e.key: e.value for e in manager.describe(TOPIC).configs if e.source.value == "topic"}
        assert own == {"retention.ms": "6"}


def fs_without(fs: FileSystem, name: str) -> FileSystem:
    """Return a file system in which the broker has put a deleted partition out of the way."""
    fs.rename(f"{ROOT}/{name}", f"{ROOT}/{name}.{'0' * 32}-delete")
    return fs


def test_the_next_broker_goes_on_where_the_last_one_stopped() -> None:
    fs = root_with(Scene())
    to_kafka(fs)
    quota = OtherRecord(MetadataRecordType.CLIENT_QUOTA, b"\x01\x0e\x00 a quota")
    topic_id = read_topic_id(fs, f"{ROOT}/{TOPIC}-0") or ""
    elections = [PartitionChangeRecord(topic_id, 0, leader, None) for leader in (-1, 1, -1)]
    more = [FeatureLevelRecord("metadata.version", 29), quota, ProducerIdsRecord(5000), *elections]
    play_broker(fs, more=more)
    from_kafka(fs)
    to_kafka(fs)
    told = bootstrap_records(fs)
    assert of_kind(told, FeatureLevelRecord) == [FeatureLevelRecord("metadata.version", 29)]
    assert of_kind(told, OtherRecord) == [quota]
    assert of_kind(told, ProducerIdsRecord) == [ProducerIdsRecord(5000)]
    assert [each.leader_epoch for each in of_kind(told, PartitionRecord)] == [4, 2]


@pytest.mark.parametrize("how", ["clean", "killed"])
def test_a_real_brokers_log_dir_becomes_a_root_with_all_its_topics(
    how: str, tmp_path: Path
) -> None:
    fs, root = LocalFileSystem(), str(unpack(f"C-broker/{how}-log.dir.tar.gz", tmp_path)) + "/root"
    with LogManager.open(root, create=True):
        pass
    fs.rename(f"{root}/.streamlog", f"{tmp_path}/{how}-log.dir.streamlog")
    root = f"{tmp_path}/{how}-log.dir"
    from_kafka(fs, root)
    with LogManager.open(root) as manager:
        names = manager.topics()
        ids = {name: manager.describe(name).topic_id for name in names}
        assert {"__consumer_offsets", "__transaction_state", "txn", "keyed"} < set(names)
        assert all(ids.values())
        assert manager.topic_config("compacted").cleanup_policy == {"compact"}
        log = manager.log("txn", 0)
        end = log.log_end_offset
        assert log.append([Record(None, b"ours", timestamp=NOW)]).base_offset == end


# ---- refusals -------------------------------------------------------------------------------
def refused_to_kafka(fs: FileSystem, kind: type[StreamLogError], match: str) -> None:
    before = snapshot_of(fs)
    with pytest.raises(kind, match=match):
        to_kafka(fs)
    assert snapshot_of(fs) == before


def refused_from_kafka(fs: FileSystem, kind: type[StreamLogError], match: str) -> None:
    before = snapshot_of(fs)
    with pytest.raises(kind, match=match):
        from_kafka(fs)
    assert snapshot_of(fs) == before


def test_a_root_that_somebody_writes_is_not_handed_over() -> None:
    scene = Scene()
    scene.append(0, b"one")
    refused_to_kafka(scene.fs, UnavailableError, "open for writing")


def test_a_root_with_a_damaged_record_is_not_handed_over() -> None:
    fs = root_with(Scene())
    with fs.open(f"{ROOT}/{TOPIC}-0/{LOG}", OpenMode.WRITE) as file:
        file.pwrite(b"\xff", 80)
    refused_to_kafka(fs, CorruptDataError, "would delete damaged data")


def test_a_root_with_a_decision_that_cannot_be_read_is_not_handed_over() -> None:
    scene = Scene()
    scene.commit(0)
    [name] = scene.pending_names()
    scene.manager.close()
    write_file_atomically(scene.fs, f"{ROOT}/.streamlog/commits/pending/{name}", b"rubbish")
    refused_to_kafka(scene.fs, CorruptDataError, ".")


def test_a_decision_that_cannot_be_applied_leaves_the_root_a_root() -> None:
    scene, staged = reach("decided")
    scene.manager.close()
    path = f"{ROOT}/.streamlog/staging/query-1%2Ft/{staged.name}"
    with scene.fs.open(path, OpenMode.WRITE) as file:
        file.pwrite(b"\xff\xff", 100)
    with pytest.raises(StreamLogError):
        to_kafka(scene.fs)
    assert scene.fs.stat(STATE) is None
    assert scene.pending_names()
    assert values_in(scene.fs, f"{ROOT}/{TOPIC}-0") == rows_of(0, 0)


@pytest.mark.parametrize("name", ["notes", "other-0", f"{TOPIC}-2-stray"])
def test_a_root_with_a_directory_of_nobody_is_not_handed_over(name: str) -> None:
    fs = root_with(Scene())
    make_directories(fs, f"{ROOT}/{name}")
    refused_to_kafka(fs, InvalidRequestError, "not a partition of a topic")


def test_a_topic_that_is_not_complete_is_not_handed_over() -> None:
    fs = root_with(Scene())
    fs.rename(f"{ROOT}/{TOPIC}-0", "/elsewhere")
    refused_to_kafka(fs, InvalidRequestError, "is incomplete")


def test_a_topic_of_two_ids_is_not_handed_over() -> None:
    fs = root_with(Scene())
    write_topic_id(fs, f"{ROOT}/{TOPIC}-1", FOREIGN_ID)
    refused_to_kafka(fs, InconsistentTopicIdError, "have different topic ids")


def test_a_root_whose_state_lies_beside_it_as_well_is_not_handed_over() -> None:
    fs = root_with(Scene())
    make_directories(fs, STATE)
    write_file_atomically(fs, f"{STATE}/server.properties", b"")
    refused_to_kafka(fs, InvalidRequestError, "both in the root and beside it")
    refused_from_kafka(fs, InvalidRequestError, "both in the root and beside it")


def test_a_log_dir_of_a_broker_is_not_handed_over() -> None:
    fs = root_with(Scene())
    make_directories(fs, "/theirs/orders-0")
    with pytest.raises(InvalidRequestError, match="not made by streamlog"):
        to_kafka(fs, "/theirs")


def test_a_root_with_metadata_of_a_broker_has_to_come_back_first() -> None:
    fs = root_with(Scene())
    make_directories(fs, f"{ROOT}/__cluster_metadata-0")
    refused_to_kafka(fs, InvalidRequestError, "a broker.s cluster metadata")


def handed_over() -> MemoryFileSystem:
    scene = Scene()
    root_with(scene)
    to_kafka(scene.fs)
    play_broker(scene.fs, values=1)
    return scene.memory


def test_a_log_dir_without_our_state_beside_it_is_not_taken() -> None:
    fs = handed_over()
    fs.rename(STATE, "/elsewhere")
    refused_from_kafka(fs, InvalidRequestError, "state of this root is missing")


def test_a_log_dir_of_another_cluster_is_not_taken() -> None:
    fs = handed_over()
    meta = read_meta_properties(fs, ROOT)
    assert meta is not None
    write_meta_properties(fs, ROOT, meta._replace(cluster_id="MkU3OEVBNTcwNTJENDM2Qk"))
    refused_from_kafka(fs, InvalidRequestError, "another cluster")


def test_a_partition_with_an_epoch_that_the_broker_never_had_is_not_taken() -> None:
    fs = handed_over()
    write_file_atomically(fs, f"{ROOT}/{TOPIC}-0/leader-epoch-checkpoint", b"0\n1\n99 0\n")
    refused_from_kafka(fs, InvalidRequestError, "later leader epoch than the broker")


def test_a_partition_of_another_id_is_not_taken() -> None:
    fs = handed_over()
    write_topic_id(fs, f"{ROOT}/{TOPIC}-0", FOREIGN_ID)
    refused_from_kafka(fs, InconsistentTopicIdError, "another topic id than in the broker")


def test_a_partition_that_other_brokers_have_too_is_not_taken() -> None:
    fs = root_of_two()
    refused_from_kafka(fs, InvalidRequestError, "other brokers hold replicas of this partition")


def root_of_two() -> FileSystem:
    fs = root_with(Scene())
    to_kafka(fs)
    topic_id = read_topic_id(fs, f"{ROOT}/{TOPIC}-0") or ""
    play_broker(fs, more=[PartitionChangeRecord(topic_id, 1, None, (1, 2))])
    return fs


def test_a_partition_that_the_broker_put_aside_stops_the_way_back() -> None:
    fs = handed_over()
    fs.rename(f"{ROOT}/{TOPIC}-1", f"{ROOT}/{TOPIC}-1.{'0' * 32}-stray")
    refused_from_kafka(fs, InvalidRequestError, "set a partition aside")


def test_a_partition_in_another_log_dir_of_the_broker_stops_the_way_back() -> None:
    fs = root_with(Scene())
    to_kafka(fs)
    play_broker(fs)
    fs.rename(f"{ROOT}/{TOPIC}-1", f"/elsewhere-{TOPIC}-1")
    with pytest.raises(InvalidRequestError, match="not in this root") as caught:
        from_kafka(fs)
    assert caught.value.path == f"{ROOT}/{TOPIC}-1"
    assert caught.value.hint is not None and "log.dir" in caught.value.hint
    assert fs.stat(STATE) is not None
    fs.rename(f"/elsewhere-{TOPIC}-1", f"{ROOT}/{TOPIC}-1")
    from_kafka(fs)
    assert fs.stat(STATE) is None


def test_damaged_metadata_stops_the_way_back() -> None:
    fs = handed_over()
    data = bytearray(metadata_log(bootstrap_records(fs)) * 2)
    data[100] ^= 1
    write_file_atomically(fs, f"{ROOT}/__cluster_metadata-0/{LOG}", bytes(data))
    refused_from_kafka(fs, CorruptDataError, "checksum|CRC")
