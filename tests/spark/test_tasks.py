"""What a worker of Spark spares itself."""

import gc
import itertools
from collections.abc import Iterator

import pytest

from streamlog.spark.tasks import settle

pids = itertools.count(-1, -1)


class Bystander:
    """An object that the collector looks at."""


@pytest.fixture(autouse=True)
def unfrozen() -> Iterator[None]:
    """Give everything back to the collector."""
    yield
    gc.unfreeze()


def is_seen(bystander: Bystander) -> bool:
    """Tell whether a collection would look at the object."""
    return any(each is bystander for each in gc.get_objects())


def test_what_the_first_two_tasks_leave_is_never_looked_at_again() -> None:
    pid = next(pids)
    first, second, third = Bystander(), None, None
    settle(pid)
    second = Bystander()
    assert (is_seen(first), is_seen(second)) == (False, True)
    settle(pid)
    third = Bystander()
    settle(pid)
    assert (is_seen(second), is_seen(third)) == (False, True), "garbage is collected from now on"


def test_a_forked_worker_starts_anew() -> None:
    parent, child = next(pids), next(pids)
    for _ in range(3):
        settle(parent)
    bystander = Bystander()
    settle(child)
    assert not is_seen(bystander)
