"""The calculation of costs counts the requests of real triggers."""

from tests.programs.storage_cost import TASKS, Load, count_requests, of_kafka, of_streamlog


def test_a_trigger_makes_few_requests() -> None:
    counts = count_requests(Load(100, 10, 7), triggers=80)
    written = counts["write"]
    assert round(written["upload"], 6) == TASKS
    assert round(sum(written[kind] for kind in ("create", "put", "upload")), 6) <= TASKS + 2
    assert written["get"] + written["read"] + written["list"] + written["stat"] <= 4
    assert counts["read"]["get"] <= 2.5  # a snapshot now and then
    assert sum(counts["maintain"].values()) < sum(written.values())


def test_what_is_kept_and_moved_is_paid() -> None:
    load = Load(1_000, 10, 7)
    counts = count_requests(load, triggers=20)
    ours, theirs = of_streamlog(load, counts).dollars(), of_kafka(load).dollars()
    assert round(ours["object GB-month"], 2) == round(604.8 * 0.023, 2)
    assert round(theirs["GB between zones"], 2) == round(2_592 * (2 + 4 / 3) * 0.02, 2)
