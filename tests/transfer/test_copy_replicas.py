"""Copies of a replica set, and of a broker's disk beside its tiered storage."""

import os
import shutil
from pathlib import Path
from random import Random

import pytest

from streamlog import LogManager, Record, read_table
from streamlog.errors import InvalidOptionError, NoReplicaOnlineError
from streamlog.segment.filenames import base_offsets, log_file_name
from streamlog.transfer.ends import CopyTopic
from streamlog.transfer.places import open_source, open_target
from tests.support.cli import ok, streamlog
from tests.support.replica_set import ReplicaSet
from tests.transfer.test_copy import findings


def values(path: str | Path) -> list[bytes]:
    return read_table(str(path), topic="orders").sort_by("offset")["value"].to_pylist()


def test_a_set_is_copied_through_its_leaders(tmp_path: Path) -> None:
    replicas = ReplicaSet(tmp_path, partitions=2)
    replicas.append(["a", "b"])
    replicas.append(["x"], partition=1)
    target = tmp_path / "there"
    ok("copy", replicas.text, target)
    assert sorted(values(target)) == [b"a", b"b", b"x"]
    theirs = open_source(replicas.text).topics()["orders"]
    assert isinstance(theirs, CopyTopic) and theirs.partitions == (0, 1)
    assert open_source(str(target)).topics()["orders"] == theirs
    replicas.append(["c"])
    ok("copy", replicas.paths[2], target)  # one root names the others
    assert sorted(values(target)) == [b"a", b"b", b"c", b"x"]
    assert findings(target) == []


def test_a_set_is_copied_while_roots_are_away(tmp_path: Path) -> None:
    replicas = ReplicaSet(tmp_path)
    replicas.append(["a", "b"])
    replicas.lose(0)
    target = tmp_path / "there"
    ok("copy", replicas.text, f"file://{target}")
    assert values(f"file://{target}") == [b"a", b"b"]
    replicas.lose(1)
    replicas.lose(2)
    with pytest.raises(NoReplicaOnlineError):
        open_source(replicas.text)


def test_a_follower_alone_gives_what_is_committed(tmp_path: Path) -> None:
    replicas = ReplicaSet(tmp_path)
    replicas.append(["a"])
    shutil.copytree(replicas.paths[1], tmp_path / "before")
    replicas.append(["b"])
    shutil.rmtree(replicas.paths[1])
    os.rename(tmp_path / "before", replicas.paths[1])  # restored from an older copy
    ok("copy", replicas.paths[1], tmp_path / "there")
    assert values(tmp_path / "there") == [b"a", b"b"]


def test_a_copy_has_one_target(tmp_path: Path) -> None:
    replicas = ReplicaSet(tmp_path)
    with pytest.raises(InvalidOptionError, match="one target"):
        open_target(replicas.text)
    ran = streamlog("copy", replicas.paths[0], replicas.text)
    assert ran.code == 2


def test_a_disk_is_copied_with_its_tiered_storage(tmp_path: Path) -> None:
    disk, storage = tmp_path / "disk", tmp_path / "kafka-tiered-storage"
    with LogManager.open(disk, create=True) as manager:
        manager.create_topic("orders", 1, {"internal.segment.bytes": 300, "retention.ms": -1})
        for number in range(20):
            manager.log("orders", 0).append([Record(None, b"%d" % number, (), 1 + number)])
    log = disk / "orders-0"
    topic_id = open_source(str(disk)).topics()["orders"].topic_id
    remote = storage / f"orders-0-{topic_id}"
    remote.mkdir(parents=True)
    *closed, _ = base_offsets([each.name for each in log.iterdir()])
    assert len(closed) > 3
    for base in closed:  # as LocalTieredStorage copies, and local retention deletes
        name = log_file_name(base).removesuffix(".log")
        copy = remote / f"{name}-{Random(base).randbytes(16).hex()[:21]}A"
        for kind in (".log", ".index", ".timeindex"):
            shutil.copy(log / f"{name}{kind}", f"{copy}{kind}")
            (log / f"{name}{kind}").unlink()
        shutil.copy(log / "leader-epoch-checkpoint", f"{copy}.leader_epoch_checkpoint")
    target = tmp_path / "there"
    ok("copy", f"{disk},{storage}", target)
    assert values(target) == [b"%d" % number for number in range(20)]
    assert findings(target) == []
    (again,) = ok("copy", f"{disk},{storage}", target).rows
    assert again["bytes"] == 0
