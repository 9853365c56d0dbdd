"""The allowance of the loops that stand for the kernels until numba is loaded."""

from streamlog.records.plain_records import Allowance


class Seconds:
    """A clock that tests turn."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_reserve_is_used_up() -> None:
    allowance = Allowance(100, 10, Seconds())
    assert allowance.take(60)
    assert allowance.take(40)
    assert not allowance.take(1)


def test_time_refills_the_reserve_but_no_more() -> None:
    clock = Seconds()
    allowance = Allowance(100, 10, clock)
    assert allowance.take(100)
    clock.now = 3
    assert not allowance.take(31)
    assert allowance.take(30)
    assert not allowance.take(1)
    clock.now = 1000
    assert not allowance.take(101)
    assert allowance.take(100)


def test_asking_counts_nothing() -> None:
    clock = Seconds()
    allowance = Allowance(100, 10, clock)
    assert allowance.take(90)
    assert [allowance.has(10), allowance.has(10), allowance.has(11)] == [True, True, False]
    clock.now = 1
    assert allowance.has(20)
    clock.now = 1000
    assert not allowance.has(101)
    assert allowance.take(100)


def test_a_steady_rate_within_the_allowance_never_ends() -> None:
    clock = Seconds()
    allowance = Allowance(100, 10, clock)
    for second in range(1000):
        clock.now = float(second)
        assert allowance.take(9)
