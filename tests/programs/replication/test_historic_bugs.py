"""Each historic bug is detected by the test of its case, two also by the enumeration."""

import pytest

from streamlog.replication import isr
from streamlog.replication.truncation import TruncationRule
from tests.programs.reliability.bugs.patching import StaleBugError
from tests.programs.replication.historic_bugs import BUGS, HistoricBug, Switch, brought_back
from tests.programs.replication.specification import Model, enumerate_states
from tests.replication import test_election, test_follower, test_leader

CASES = {
    "KAFKA-2143": lambda: test_follower.test_out_of_range(*test_follower.OUT_OF_RANGE[-1]),
    "KAFKA-7128": test_leader.test_a_follower_joins_at_the_start_of_the_leaders_own_epoch,
    "KAFKA-7414": lambda: test_follower.test_out_of_range(*test_follower.OUT_OF_RANGE[2]),
    "KAFKA-7415": test_leader.test_a_new_epoch_starts_at_the_log_end_even_without_records,
    "KAFKA-9491": lambda: test_follower.test_out_of_range(*test_follower.OUT_OF_RANGE[1]),
    "KAFKA-10432": test_follower.test_epoch_0_is_an_epoch,
    "KAFKA-10706": test_follower.test_an_epoch_without_records_is_not_asked_for_again,
    "KAFKA-14704": (
        test_follower.test_a_fetch_across_an_unknown_epoch_truncates_to_the_old_high_watermark
    ),
    "KAFKA-15583": test_leader.test_below_min_isr_nothing_is_committed,
    "KAFKA-19996": test_leader.test_below_min_isr_a_follower_joins_only_with_the_whole_log,
    "crabka-308": test_leader.test_installing_an_isr_forgets_nothing_about_followers,
    "KIP-966-unclean": lambda: (
        test_election.test_uncleanly_restarted_replicas_are_eligible_no_longer(
            (0, 1), (2,), (2,), (0, (0, 1), (), -1, 3)
        )
    ),
    "higher-epochs": (test_follower.test_a_follower_with_only_higher_epochs_keeps_nothing_of_them),
    "isr-in-flight": test_leader.test_a_follower_about_to_join_is_waited_for,
    "unfenced-epoch": lambda: [
        test_leader.test_requests_of_another_epoch_are_fenced(*row) for row in test_leader.FENCED
    ],
}


def test_each_bug_has_a_case():
    assert set(CASES) == set(BUGS)


@pytest.mark.parametrize("name", BUGS)
def test_the_case_of_a_bug_detects_it(name):
    CASES[name]()
    with brought_back(BUGS[name]), pytest.raises(AssertionError):
        CASES[name]()
    CASES[name]()


@pytest.mark.parametrize("name", ["KAFKA-7128", "unfenced-epoch"])
def test_the_enumeration_finds_a_bug(name):
    with brought_back(BUGS[name]):
        found = enumerate_states(Model(TruncationRule.KIP_320, production=True))
    assert found.violated is not None


def test_a_bug_whose_text_is_gone_is_reported():
    stale = HistoricBug("none", (Switch(isr.may_join, "no such text", ""),))
    with pytest.raises(StaleBugError, match="may_join"), brought_back(stale):
        pass
