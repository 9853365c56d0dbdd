"""Every row of the table of verdicts."""

from itertools import product

import pytest

from streamlog.commits.fingerprint import Fingerprint, Likeness
from streamlog.commits.identity import CommitIdentity
from streamlog.commits.replay import (
    CASES,
    OnMismatch,
    ReplayRule,
    Verdict,
    VersionPlace,
    judge,
    place_of,
    refuse,
)

EVERYTHING = list(product(VersionPlace, ReplayRule, OnMismatch))


@pytest.mark.parametrize(("place", "rule", "on_mismatch"), EVERYTHING)
def test_every_combination_matches_exactly_one_case(
    place: VersionPlace, rule: ReplayRule, on_mismatch: OnMismatch
) -> None:
    fitting = [
        case
        for case in CASES
        if case.place is place
        and case.rule in (None, rule)
        and case.on_mismatch in (None, on_mismatch)
    ]
    assert [case.verdict for case in fitting] == [judge(place, rule, on_mismatch)]


def test_every_case_is_reachable() -> None:
    verdicts = {judge(*facts) for facts in EVERYTHING}
    assert verdicts == set(Verdict)


@pytest.mark.parametrize(
    ("version", "last_version", "known", "place"),
    [
        (7, -1, [], VersionPlace.FIRST),
        (0, -1, [], VersionPlace.FIRST),
        (8, 7, [], VersionPlace.NEXT),
        (9, 7, [], VersionPlace.LATER),
        (7, 7, [Likeness.SAME], VersionPlace.SAME),
        (7, 7, [Likeness.OTHER], VersionPlace.OTHER),
        (7, 7, [Likeness.OTHER, Likeness.SAME], VersionPlace.SAME),
        (3, 7, [Likeness.OTHER, Likeness.OTHER], VersionPlace.OTHER),
        (7, 7, [Likeness.ANOTHER_QUERY], VersionPlace.ANOTHER_QUERY),
        (7, 7, [Likeness.ANOTHER_QUERY, Likeness.OTHER], VersionPlace.OTHER),
        (7, 7, [Likeness.ANOTHER_QUERY, Likeness.SAME], VersionPlace.SAME),
        (3, 7, [], VersionPlace.FORGOTTEN),
    ],
)
def test_place_of_a_version(
    version: int, last_version: int, known: list[Likeness], place: VersionPlace
) -> None:
    assert place_of(version, last_version=last_version, known=known) is place


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (
            VersionPlace.OTHER,
            ["already committed with other rows", '{"t":{"0":60}}', '{"t":{"0":107}}', "append"],
        ),
        (VersionPlace.ANOTHER_QUERY, ["by another query", "query one", "query two", "txnAppId"]),
        (VersionPlace.LATER, ["does not follow", "version 9", "8, or 7 again", "checkpoint"]),
        (VersionPlace.FORGOTTEN, ["older than the versions kept", "last 100", "txnAppId"]),
    ],
)
def test_a_refusal_says_what_was_expected_and_what_to_do(
    place: VersionPlace, words: list[str]
) -> None:
    error = refuse(
        CommitIdentity("q/t", 9),
        place,
        last_version=7,
        fingerprint=Fingerprint('{"t":{"0":107}}', 77, 1, "one"),
        known=[Fingerprint('{"t":{"0":60}}', 30, 2, "two")],
    )
    text = f"{error} {error.hint}"
    assert all(word in text for word in words), text
