"""Partitions of keys as Kafka's client selects them, and sticky partitions without a key."""

import base64
import itertools
import json
import random

import numpy as np
import pytest

from streamlog.errors import InvalidPartitionsError, InvalidRequestError
from streamlog.records.columns import BinaryColumn
from streamlog.records.partitioner import StickyPartitioner, murmur2, partition_for_keys
from tests.support.golden import GOLDEN

FACTS = json.loads((GOLDEN / "G-partitioner" / "murmur2.json").read_text())
KEYS = [base64.b64decode(line["key"]) for line in FACTS["keys"]]


def test_hashes_are_kafkas() -> None:
    assert [murmur2(key) for key in KEYS] == [line["murmur2"] for line in FACTS["keys"]]


@pytest.mark.parametrize("place", range(len(FACTS["n"])))
def test_partitions_are_kafkas(place: int) -> None:
    found = partition_for_keys(BinaryColumn.from_values(KEYS), FACTS["n"][place])
    assert found.tolist() == [line["partitions"][place] for line in FACTS["keys"]]
    assert found.dtype == np.int32


def test_null_keys_have_no_partition_but_empty_ones_do() -> None:
    found = partition_for_keys(BinaryColumn.from_values([None, b"", None]), 1)
    assert found.tolist() == [-1, 0, -1]


def test_no_partitions_are_refused() -> None:
    with pytest.raises(InvalidPartitionsError):
        partition_for_keys(BinaryColumn.from_values([b"k"]), 0)
    with pytest.raises(InvalidPartitionsError):
        StickyPartitioner(0, random.Random(1))


def test_keys_outside_their_bytes_are_refused() -> None:
    column = BinaryColumn(np.array([0, 9], np.int32), np.zeros(3, np.uint8))
    with pytest.raises(InvalidRequestError):
        partition_for_keys(column, 3)


def test_the_sticky_partitioner_switches_after_its_share() -> None:
    sticky = StickyPartitioner(4, random.Random(1), sticky_bytes=1000)
    chosen = [sticky.partition(100) for _ in range(400)]
    runs = [chosen[start : start + 10] for start in range(0, 400, 10)]
    assert all(len(set(run)) == 1 for run in runs)
    assert all(a[0] != b[0] for a, b in itertools.pairwise(runs))
    assert set(chosen) == {0, 1, 2, 3}


def test_the_sticky_partitioner_is_deterministic_and_supports_a_single_partition() -> None:
    first, second = (StickyPartitioner(5, random.Random(9), sticky_bytes=50) for _ in range(2))
    assert [first.partition(20) for _ in range(50)] == [second.partition(20) for _ in range(50)]
    alone = StickyPartitioner(1, random.Random(9), sticky_bytes=1)
    assert {alone.partition(5) for _ in range(10)} == {0}
