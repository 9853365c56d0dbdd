"""The protocol visits the states of the published specification, and older rules fail as there.

The counts are those of TLC for the same constants: of the module Kip320 for the variant
`specification`, of that module with the product's two differences for `production`.
"""

import pytest

from streamlog.replication.truncation import TruncationRule
from tests.programs.replication.specification import Model, enumerate_states

KIP_320 = TruncationRule.KIP_320

# production, replicas, log size, records, greatest epoch → distinct, generated, depth
SMALL = [
    (False, 3, 2, 2, 1, 39_619, 104_488, 22),
    (True, 3, 2, 2, 1, 41_305, 112_663, 22),
    (False, 2, 3, 3, 2, 21_493, 45_141, 22),
    (True, 2, 3, 3, 2, 23_299, 50_091, 21),
]
# With the constants 3, 2, 2, 2 (the command): 737,794 and 1,967,560 and 26; for `production`
# 836,584 and 2,316,925 and 26.


@pytest.mark.parametrize("row", SMALL, ids=str)
def test_the_rule_in_use_visits_exactly_the_states_of_the_specification(row):
    production, replicas, log_size, records, epoch, distinct, generated, depth = row
    model = Model(
        KIP_320,
        replicas=replicas,
        log_size=log_size,
        max_records=records,
        max_leader_epoch=epoch,
        production=production,
    )
    found = enumerate_states(model)
    assert found.violated is None
    assert (found.distinct, found.generated, found.depth) == (distinct, generated, depth)


@pytest.mark.parametrize(
    ("rule", "depth"),
    [
        (TruncationRule.TRUNCATE_TO_HIGH_WATERMARK, 9),
        (TruncationRule.KIP_101, 11),
        (TruncationRule.KIP_279, 11),
        (TruncationRule.KIP_320_FIRST_TRY, 12),
    ],
)
def test_older_rules_lose_committed_records_as_soon_as_in_the_specification(rule, depth):
    found = enumerate_states(Model(rule))
    assert (found.violated, found.depth, len(found.history)) == ("WeakIsr", depth, depth)
    assert found.history[0][0] == "Init"
