"""Versions share memory and never change, whichever of them is continued."""

import random

import pytest

from streamlog.bucket.versions import Counts, Items


def test_appending_copies_nothing() -> None:
    first = Items("ab")
    second = first.appended("c")
    third = second.appended("de")
    assert first._shared is second._shared is third._shared
    assert (first[:], second[:], third[:]) == (tuple("ab"), tuple("abc"), tuple("abcde"))


def test_a_version_that_is_continued_twice_keeps_its_items() -> None:
    first = Items("ab")
    one, other = first.appended("c"), first.appended("x")
    assert (one[:], other[:], first[:]) == (tuple("abc"), tuple("abx"), tuple("ab"))
    assert other.appended("y")._shared is other._shared


def test_items_are_like_a_tuple() -> None:
    whole = tuple(range(20))
    few = Items(range(5))
    items = few.appended(range(5, 20))
    few.appended([99])
    assert items == whole and items == Items(whole) and items != Items(range(19))
    assert hash(items) == hash(whole)
    assert list(items) == list(whole) and list(few) == [0, 1, 2, 3, 4]
    for at in (0, 7, 19, -1, -20):
        assert items[at] == whole[at]
    for cut in (slice(3, 9), slice(None, None, -1), slice(-4, None), slice(2, 40, 3), slice(9, 3)):
        assert items[cut] == whole[cut]
    for outside in (20, -21):
        with pytest.raises(IndexError):
            items[outside]


def test_counts_are_those_of_a_dictionary_and_are_seldom_copied() -> None:
    rng = random.Random(1)
    counts, copies = Counts(), 0
    plain: dict[str, int] = {}
    versions = []
    for step in range(4000):
        name, count = f"n{rng.randrange(3000)}", rng.randrange(3)
        before = counts
        counts = counts.changed({name: count, f"new {step}": 1})
        copies += counts._shared is not before._shared
        plain[f"new {step}"] = 1
        plain[name] = count
        if not count:
            del plain[name]
        if step % 500 == 0:
            versions.append((counts, dict(plain)))
        assert len(counts) == len(plain) and (name in counts) == bool(count)
    assert counts == plain
    assert copies < 4000 / 20
    for old, expected in versions:
        assert old == expected
