"""The overview of a root says what is there, and touches nothing."""

import json
from pathlib import Path

import numpy as np
import pytest

from streamlog.bucket.places import shared_store
from streamlog.bucket.root import BucketRoot
from streamlog.clock import ManualClock
from streamlog.errors import UnknownTopicError
from streamlog.overview.look import overview_of
from streamlog.overview.model import RateWindow, RootKind, RootOverview, TopicOverview, as_json
from streamlog.overview.timeline import Timeline, offsets_per_step
from streamlog.root.manager import LogManager
from streamlog.web.pages import report_page
from tests.support.broker_disk import Disk
from tests.support.cli import ok
from tests.support.golden import GOLDEN
from tests.support.object_root import root_at, url  # noqa: F401 - a fixture
from tests.support.shown_root import HOUR, HOURS, NOW, PER_HOUR, make_shown_root
from tests.support.untouched import facts


def topic_of(root: RootOverview, name: str) -> TopicOverview:
    (found,) = [each for each in root.topics if each.name == name]
    return found


@pytest.fixture
def root(tmp_path: Path) -> str:
    return make_shown_root(tmp_path / "root")


def look(path: object, **options: int) -> RootOverview:
    return overview_of(str(path), clock=ManualClock(NOW), **options)


# ---- a root of ours -----------------------------------------------------------------------------
def test_a_root_is_counted_without_a_change(root: str) -> None:
    before = facts(Path(root))
    found = look(root)
    assert facts(Path(root)) == before
    assert found.kind is RootKind.ROOT
    assert [each.name for each in found.topics] == ["hostile", "orders", "state"]
    orders = topic_of(found, "orders")
    assert orders.records == HOURS * PER_HOUR + 1
    assert [each.records for each in orders.partitions] == [HOURS * PER_HOUR, 1]
    with LogManager.open(root) as manager:
        described = manager.describe("orders")
    assert [each.size_bytes for each in orders.partitions] == [
        each.size_bytes for each in described.partitions
    ]
    assert orders.skew == pytest.approx(2 * described.partitions[0].size_bytes / orders.size_bytes)
    assert (found.verdict, found.has_settings) == (None, True)


def test_records_are_counted_in_the_hour_of_their_batch(root: str) -> None:
    rate = topic_of(look(root), "orders").rate
    assert rate[-HOURS:] == (*[PER_HOUR] * (HOURS - 1), PER_HOUR + 1)
    assert sum(rate) == HOURS * PER_HOUR + 1


def test_an_old_root_is_shown_up_to_its_newest_record(root: str) -> None:
    found = overview_of(root, clock=ManualClock(NOW + 1000 * HOUR))
    assert found.window.start_ms <= NOW < found.window.end_ms
    assert sum(topic_of(found, "orders").rate) == HOURS * PER_HOUR + 1
    live = overview_of(root, clock=ManualClock(NOW + 1000 * HOUR), ends_now=True)
    assert sum(topic_of(live, "orders").rate) == 0


def test_segments_leave_by_retention_unless_a_reader_holds_them(root: str) -> None:
    segments = topic_of(look(root), "orders").partitions[0].segments
    assert [each.base_offset for each in segments] == [PER_HOUR * n for n in range(HOURS)]
    oldest = NOW - (HOURS - 1) * HOUR
    assert segments[0].leaves_ms == oldest + 24 * HOUR + 1
    held = [each.held_by for each in segments]
    assert held == [(), (), ("billing",), ("billing",), ("billing",), ()]
    assert [each.is_active for each in segments] == [*[False] * (HOURS - 1), True]
    late = overview_of(root, clock=ManualClock(NOW + 30 * HOUR))
    due = [each.is_due for each in topic_of(late, "orders").partitions[0].segments]
    assert due == [True, True, False, False, False, False]


def test_a_reader_is_behind_by_records_and_time(root: str) -> None:
    (billing,) = look(root).readers
    one, other = billing.positions
    assert (one.offset, one.end_offset, one.lag) == (10, 30, 20)
    assert one.behind_ms == 4 * HOUR
    assert (other.lag, other.behind_ms) == (0, 0)
    assert one.held_bytes > 0
    assert billing.lag == 20


def test_only_settings_that_differ_are_shown_and_compaction_is(root: str) -> None:
    found = look(root)
    settings = {each.key: each.value for each in topic_of(found, "orders").settings}
    assert settings == {"segment.ms": str(HOUR // 2), "retention.ms": str(24 * HOUR)}
    compaction = topic_of(found, "state").partitions[0].compaction
    assert compaction is not None
    assert compaction.is_due
    assert compaction.dirty_ratio == 1
    assert topic_of(found, "orders").partitions[0].compaction is None


def test_a_partition_or_a_file_is_shown_alone(root: str) -> None:
    found = look(f"{root}/orders-0")
    assert found.kind is RootKind.PARTITION
    assert [each.name for each in found.topics] == ["orders"]
    one = look(f"{root}/orders-0/{0:020d}.log")
    assert topic_of(one, "orders").records == PER_HOUR


def test_a_damaged_partition_does_not_hide_the_others(root: str) -> None:
    (log,) = Path(root, "hostile-0").glob("*.log")
    data = bytearray(log.read_bytes())
    data[100] ^= 1
    log.write_bytes(data)
    found = look(root)
    assert found.verdict in ("damage", "repairable")
    assert any(each.where == "hostile-0" for each in found.health)
    assert topic_of(found, "orders").records == HOURS * PER_HOUR + 1


def test_empty_topics_and_roots_are_shown(tmp_path: Path) -> None:
    with LogManager.open(tmp_path / "root", create=True) as manager:
        assert look(tmp_path / "root").topics == ()
        manager.create_topic("empty", 2, {"cleanup.policy": "compact"})
        found = look(tmp_path / "root")
    empty = topic_of(found, "empty")
    assert [each.records for each in empty.partitions] == [0, 0]
    assert (empty.skew, empty.newest_ms, sum(empty.rate)) == (None, None, 0)
    assert report_page(found).count("empty") > 1


def test_there_must_be_a_root(tmp_path: Path) -> None:
    with pytest.raises(UnknownTopicError):
        look(tmp_path / "nothing")


def test_the_json_form_holds_everything(root: str) -> None:
    shown = json.loads(json.dumps(as_json(look(root))))
    assert {"path", "kind", "topics", "readers", "sizeBytes", "verdict"} <= shown.keys()
    assert shown["topics"][1]["partitions"][0]["segments"][0]["heldBy"] == []
    assert shown["topics"][1]["settings"][0].keys() == {"name", "value", "source"}


# ---- a replica set ------------------------------------------------------------------------------
def test_a_replica_set_is_shown_without_the_root_that_is_offline(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in "abc"]
    ok("--path", paths[0], "topics", "create", "own")
    for path in paths[1:]:
        ok("--path", paths[0], "replicas", "add", path)
    ok("--path", paths[0], "topics", "create", "orders", "--replication-factor", 3)
    ok("--path", paths[0], "produce", "orders", stdin=b"a\nb\n")
    found = overview_of(str(paths[1]))
    assert found.health == ()
    assert topic_of(found, "orders").records == 2
    paths[0].rename(tmp_path / "away")
    found = overview_of(str(paths[1]))
    assert topic_of(found, "orders").partitions[0].high_watermark == 2
    assert found.verdict == "degraded"
    assert [each.where for each in found.health][:1] == [str(paths[0])]
    assert any("not in sync" in each.what for each in found.health)


# ---- a broker's disk ----------------------------------------------------------------------------
@pytest.mark.parametrize("how", ["clean", "killed"])
def test_the_disk_of_a_broker_is_understood_and_not_touched(how: str, tmp_path: Path) -> None:
    disk = Disk.unpack(how, tmp_path)
    before = facts(disk.path)
    found = overview_of(str(disk.path), is_verified=True)
    assert facts(disk.path) == before
    assert found.kind is RootKind.BROKER
    assert found.node["node.id"] == "1"
    assert not found.has_settings
    for name, partition in disk.partitions.items():
        topic, _, number = name.rpartition("-")
        shown = topic_of(found, topic)
        at, answers = shown.partitions[int(number)], partition.answers
        asked = ("topicId", "logStartOffset", "logEndOffset", "highWatermark")
        assert (shown.topic_id, at.log_start_offset, at.log_end_offset, at.high_watermark) == tuple(
            answers[key] for key in asked
        ), name
        # Its own controller recorded the settings of topics; those at their default are left out.
        settings = {each.key: each.value for each in shown.settings}
        assert settings.items() <= answers["config"].items(), name
        assert settings.get("cleanup.policy", "delete") == answers["config"].get(
            "cleanup.policy", "delete"
        )
    unclean = [each for each in found.health if "cleanly" in each.what]
    assert len(unclean) == (how == "killed")


def test_the_groups_of_a_broker_are_those_that_its_admin_lists(tmp_path: Path) -> None:
    disk = Disk.unpack("clean", tmp_path)
    found = overview_of(str(disk.path))
    admin = json.loads((GOLDEN / "C-broker" / "clean-expect" / "consumer-groups.json").read_text())
    shown = {
        group.name: {f"{each.topic}-{each.partition}": each.offset for each in group.positions}
        for group in found.groups
    }
    assert shown == {
        group: {place: each["offset"] for place, each in places.items()}
        for group, places in admin.items()
    }
    ends = {
        f"{topic.name}-{each.partition}": each.high_watermark
        for topic in found.topics
        for each in topic.partitions
    }
    lags = {
        f"{each.topic}-{each.partition}": each.lag
        for group in found.groups
        for each in group.positions
    }
    assert lags == {
        place: ends[place] - each["offset"]
        for places in admin.values()
        for place, each in places.items()
    }
    page = report_page(found)
    assert "Consumer groups" in page
    assert all(f'<th scope="row">{name}</th>' in page for name in admin)


def test_the_newest_part_of_large_offsets_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk.unpack("clean", tmp_path)
    monkeypatch.setattr("streamlog.overview.consumer_groups._READ_BYTES", 2)
    found = overview_of(str(disk.path))
    assert any("older segments are not shown" in each.what for each in found.health)


# ---- an object store ----------------------------------------------------------------------------
def test_a_root_in_an_object_store_is_shown_from_its_journal(url: str) -> None:  # noqa: F811
    import pyarrow as pa

    import streamlog

    bucket = root_at(url)
    bucket.create_topic("pages", partitions=2, configs={"retention.ms": 1000})
    rows = pa.table({"key": ["a", "b", "c"], "value": ["1", "2", "3"]})
    streamlog.write_table(rows, url, "pages", txn_app_id="import", txn_version=7)
    found = overview_of(url)
    assert found.kind is RootKind.BUCKET
    pages = topic_of(found, "pages")
    assert pages.records == 3
    assert sum(pages.rate) == 3
    assert pages.partitions[0].segments[-1].leaves_ms is not None
    assert [(each.app, each.last_version) for each in found.apps] == [("import/pages", 7)]


# ---- time lines ---------------------------------------------------------------------------------
def test_offsets_are_spread_between_points() -> None:
    window = RateWindow(start_ms=0, step_ms=10, count=4)
    line = Timeline.of(np.array([0, 20]), np.array([100, 120]))
    assert offsets_per_step([line], window) == (10, 10, 0, 0)
    jump = Timeline.of(np.array([20, 20]), np.array([5, 8]))
    assert offsets_per_step([jump], window) == (0, 0, 3, 0)
    assert offsets_per_step([line, jump], window) == (10, 10, 3, 0)


def test_times_that_go_back_and_missing_ones_do_no_harm() -> None:
    line = Timeline.of(np.array([-1, 30, 10, 40]), np.array([0, 1, 2, 3]))
    assert line.ms.tolist() == [30, 30, 40]
    empty = Timeline.of(np.array([-1]), np.array([0]))
    assert offsets_per_step([empty], RateWindow(start_ms=0, step_ms=1, count=2)) == (0, 0)


def test_verify_finds_an_object_that_is_missing(tmp_path: Path) -> None:
    import pyarrow as pa

    import streamlog

    place = f"file://{tmp_path}/bucket"
    BucketRoot(shared_store(place)).create()
    root_at(place).create_topic("pages")
    streamlog.write_table(pa.table({"value": ["a", "b"]}), place, "pages")
    sound = overview_of(place, is_verified=True)
    assert (sound.is_verified, sound.health) == (True, ())
    (staged,) = [each for each in tmp_path.glob("bucket/.streamlog/staging/**/*") if each.is_file()]
    staged.unlink()
    assert overview_of(place).health == ()
    found = overview_of(place, is_verified=True)
    assert [each.where for each in found.health] == ["pages-0"]
