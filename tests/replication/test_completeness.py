"""Which replicas prove that another one lost records."""

import pytest

from streamlog.partition.epochs import EpochEntry, LeaderEpochCache
from streamlog.partition.log_offsets import LogOffsets
from streamlog.replication.completeness import ReplicaPositions, proof_of_loss
from streamlog.replication.partition_state import PartitionState

STATE = PartitionState.created("AAAAAAAAAAAAAAAAAAAAAQ", (0, 1, 2)).with_isr((0, 1))


def replica(node: int, high_watermark: int, end: int, *epochs: tuple[int, int]) -> ReplicaPositions:
    cache = LeaderEpochCache(tuple(EpochEntry(*each) for each in epochs))
    return ReplicaPositions(node, LogOffsets(0, high_watermark, end), cache)


@pytest.mark.parametrize(
    ("other", "is_proof"),
    [
        (replica(1, 10, 10, (0, 0)), False),
        (replica(1, 11, 11, (0, 0)), True),  # more is committed
        (replica(1, 9, 11, (0, 0)), True),  # more records of the current epoch
        (replica(1, 9, 11, (1, 0)), True),  # another epoch at the last committed offset
        (replica(1, 9, 11, (0, 0), (1, 9)), False),  # uncommitted records of a later epoch
        (replica(1, 10, 10), False),  # records in an older format have no epoch
        (replica(2, 11, 11, (0, 0)), True),
        (replica(2, 9, 11, (1, 0)), False),  # not in sync: it may be the one that is wrong
        (replica(2, 11, 11), False),  # nor if it is behind by epochs
    ],
)
def test_what_another_replica_proves(other: ReplicaPositions, is_proof: bool) -> None:
    mine = replica(0, 10, 10, (0, 0))
    assert proof_of_loss(mine, [mine, other], STATE) == (other if is_proof else None)


def test_a_recovery_that_gives_old_records_an_epoch_leaves_a_candidate() -> None:
    """The last committed record has no epoch; node 0 has recovered, and lets epoch 0 go on."""
    recovered, other = replica(0, 10, 10, (0, 0)), replica(1, 10, 10)
    assert proof_of_loss(recovered, [recovered, other], STATE) is None
