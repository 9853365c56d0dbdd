"""Decided commits of one of several replicas: when they are applied or discarded."""

from random import Random

import pytest

from streamlog.errors import NotLeaderError, UnavailableError
from streamlog.fs.faults import Fault
from streamlog.fs.memory import MemoryFileSystem
from streamlog.root.partition_log import PartitionLog
from streamlog.topic import TopicPartition
from tests.support.commits import ROOT, Scene, killed, rows_of
from tests.support.replicated_log import Copies
from tests.support.segments import write_bytes

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def decided(*partitions: int) -> MemoryFileSystem:
    """Return a root whose process died right after it decided a commit, and is replicated since."""
    first = Scene()
    first.commit(0)
    dying = first.over(Fault(operation="pwrite", path_suffix=".log"))
    staged = dying.stage(1, {each: rows_of(1, each) for each in partitions})
    with killed():
        dying.commit(1, [staged])
    fs = first.memory.crash_clone(Random(1), power=False)
    root = first.log_root
    fs.make_directory(root.replication)
    for each in (T0, T1):
        write_bytes(fs, root.partition_register(each), b"")
    assert pending(fs)
    return fs


def pending(fs: MemoryFileSystem) -> list[str]:
    return fs.list(f"{ROOT}/.streamlog/commits/pending")


def open_log(fs: MemoryFileSystem, replicas: Copies | None = None) -> PartitionLog:
    return PartitionLog.open(f"{ROOT}/t-0", fs=fs, random=Random(1), replicated=replicas)


def test_decided_commits_wait_for_a_leader() -> None:
    fs = decided(0, 1)
    with open_log(fs) as log:
        end = log.log_end_offset
        with pytest.raises(NotLeaderError):
            log.apply_decided()
        log.flush()
        assert log.log_end_offset == end
    replicas = Copies()
    replicas.leads = False
    with pytest.raises(NotLeaderError):
        open_log(fs, replicas)
    replicas = Copies()
    with open_log(fs, replicas) as log:
        assert log.log_end_offset == end + len(rows_of(1, 0)) == log.high_watermark
        assert replicas.calls[0] == "begin" and "appended LEADER" in replicas.calls


def test_a_new_leader_epoch_starts_after_the_decided_commits() -> None:
    fs = decided(0)

    class Elected(Copies):
        def begin(self, log: object) -> None:
            assert isinstance(log, PartitionLog)
            log.assign_leader_epoch(4)

    with open_log(fs) as follower:
        end = follower.log_end_offset
    with open_log(fs, Elected()) as log:
        assert log.leader_epochs.entries[-1] == (4, end + len(rows_of(1, 0)))


def test_a_truncated_replica_discards_what_its_leader_lacks() -> None:
    fs = decided(0)
    with open_log(fs) as log:
        end = log.log_end_offset
        log.truncate_replica(end + len(rows_of(1, 0)))
        names = pending(fs)
        log.truncate_replica(end)
        assert log.log_end_offset == end
    for power in (False, True):
        crashed = fs.crash_clone(Random(1), power=power)
        assert pending(crashed) == names[:-1]
        with open_log(crashed, Copies()) as log:
            assert log.log_end_offset == end


def test_a_commit_to_several_partitions_is_not_discarded_for_one() -> None:
    fs = decided(0, 1)
    names = pending(fs)
    with open_log(fs) as log:
        end = log.log_end_offset
        with pytest.raises(UnavailableError, match="2 partitions"):
            log.truncate_replica(end - 1)
        assert (log.log_end_offset, pending(fs)) == (end, names)
