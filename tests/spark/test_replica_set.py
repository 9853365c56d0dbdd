"""A streaming query that reads replicated topics: the leader's root is lost, and comes back."""

import shutil
from pathlib import Path

import pytest

from streamlog.arrow.subscription import LOOK_EVERY_MS
from streamlog.errors import DataLossError, NoReplicaOnlineError
from tests.support.replica_set import ReplicaSet
from tests.support.stream_query import Query


@pytest.fixture
def replicas(tmp_path):
    """Three roots, six records in two appends: a follower's high watermark is 3."""
    made = ReplicaSet(tmp_path)
    made.append("abc")
    made.append("def", closes=False)
    return made


def query_of(replicas, path=None, **options):
    return Query(None, path=path or replicas.text, startingoffsets="earliest", **options)


def read(query):
    """Trigger once, after the query may look at the roots again; return the values as text."""
    query.clock.advance(1000)
    return "".join(query.trigger() or ())


@pytest.mark.parametrize("vanish", [ReplicaSet.lose, ReplicaSet.unmount])
def test_every_row_is_read_once_over_the_loss_and_return_of_the_leader(replicas, vanish):
    query = query_of(replicas)
    assert read(query) == "abcdef"
    vanish(replicas, 0)
    assert read(query) == ""
    replicas.append("gh")
    assert read(query) == "gh"
    query.restart()
    assert read(query) == ""
    replicas.bring_back(0)
    replicas.append("ij")
    assert read(query) == "ij"
    vanish(replicas, 1)
    replicas.append("k")
    assert read(query) == "k"
    assert query.start["orders"] == {"0": 11}


@pytest.mark.parametrize("number", [0, 1, 2])
def test_one_root_names_the_others(replicas, number):
    assert read(query_of(replicas, path=replicas.paths[number])) == "abcdef"
    replicas.lose((number + 1) % 3)
    replicas.append("g")
    query = query_of(replicas, path=replicas.paths[number])
    assert read(query) == "abcdefg"


def test_follower_is_read_below_its_high_watermark(replicas):
    replicas.lose(0)
    query = query_of(replicas)
    assert read(query) == "abc"
    replicas.append("g")  # the new leader's followers have the rest
    assert read(query) == "defg"


def test_position_above_the_followers_watermark_is_no_loss_after_a_restart(replicas):
    query = query_of(replicas)
    assert read(query) == "abcdef"
    replicas.lose(0)
    query.restart()
    assert read(query) == ""
    assert query.start["orders"] == {"0": 6}


def test_planned_batch_is_read_from_a_follower_above_its_watermark(replicas):
    query = query_of(replicas)
    query.plan()
    query.restart()
    replicas.lose(0)
    query.run()
    assert "".join(query.batches[-1]) == "abcdef"


def test_replica_out_of_sync_cannot_show_a_loss(replicas):
    replicas.lose(2)
    replicas.append("gh")
    query = query_of(replicas)
    assert read(query) == "abcdefgh"
    replicas.lose(0)
    replicas.lose(1)
    replicas.bring_back(2)
    for _ in range(2):
        assert read(query) == ""
        query.restart()
    query.reader.stop()
    replicas.bring_back(1)
    replicas.append("i")
    assert read(query) == "i"


def test_planned_batch_waits_while_only_a_replica_out_of_sync_is_there(replicas):
    replicas.lose(2)
    replicas.append("gh")
    query = query_of(replicas)
    query.plan()
    query.restart()
    replicas.bring_back(2)
    replicas.lose(0)
    replicas.lose(1)
    with pytest.raises(NoReplicaOnlineError):
        query.run()
    replicas.bring_back(1)
    query.run()
    assert "".join(query.batches[-1]) == "abcdefgh"


def test_records_that_every_replica_lost_are_reported(replicas):
    query = query_of(replicas)
    query.plan()
    query.run()
    for path in replicas.paths:
        log = next(Path(f"{path}/orders-0").glob("*.log"))
        log.write_bytes(log.read_bytes()[: log.stat().st_size // 2])
        for name in ("recovery-point-offset-checkpoint", ".streamlog/locks/orders-0"):
            Path(f"{path}/{name}").unlink(missing_ok=True)
    query.restart()
    with pytest.raises(DataLossError):
        query.trigger()


def test_root_that_returns_with_an_older_copy_loses_and_repeats_nothing(replicas):
    older = replicas.home + "/older"
    shutil.copytree(replicas.paths[2], older)
    replicas.append("gh")
    query = query_of(replicas)
    assert read(query) == "abcdefgh"
    shutil.rmtree(replicas.paths[2])
    shutil.copytree(older, replicas.paths[2])
    replicas.lose(0)
    assert read(query) == ""
    replicas.append("i")
    assert read(query) == "i"


def test_leader_that_returns_with_an_older_copy_shows_no_loss(replicas):
    older = replicas.home + "/older"
    shutil.copytree(replicas.paths[0], older)
    replicas.append("gh")
    query = query_of(replicas)
    assert read(query) == "abcdefgh"
    shutil.rmtree(replicas.paths[0])
    shutil.copytree(older, replicas.paths[0])
    query.restart()  # no writer has elected another leader
    assert read(query) == ""
    assert read(query_of(replicas)) == "abcdefgh"
    replicas.append("i")
    assert read(query) == "i"


def test_position_of_a_group_is_in_every_reachable_root(replicas):
    replicas.lose(1)
    query = query_of(replicas, **{"kafka.group.id": "billing"})
    query.drain()
    replicas.bring_back(1)
    replicas.append("g")
    query.clock.advance(LOOK_EVERY_MS)
    query.drain()
    texts = {
        (Path(path) / ".streamlog/readers/billing.json").read_text() for path in replicas.paths
    }
    assert len(texts) == 1
    assert '"0": 7' in texts.pop()
