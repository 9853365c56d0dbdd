"""How fingerprints distinguish a replay from another commit of the same identity."""

from itertools import product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.commits.fingerprint import Fingerprint, Likeness, checksum_sum
from streamlog.query.checkpoint import BatchSource, Naming, logged_files, naming_of

KAFKA = '{"orders":{"0":23,"1":7}}'
STREAMLOG = '{"$leaderEpochs": {"in": {"0": 3}}, "$topicIds": {"in": "x"}, "in": {"0": 60}}'
DELTA = (
    '{"sourceVersion":1,"reservoirId":"6f1c","reservoirVersion":12,"index":-1,'
    '"isStartingVersion":false}'
)
FILES = '{"logOffset":0}'


@pytest.mark.parametrize("line", [KAFKA, STREAMLOG, DELTA, "-"])
def test_lines_that_name_where_a_batch_ends(line: str) -> None:
    assert naming_of(line) is Naming.END


@pytest.mark.parametrize(
    "line",
    [
        FILES,
        "12",  # rate, socket, memory
        '{"offset":300,"timestamp":1700000000000}',  # rate-micro-batch
        '{"offset": 5}',
        "{}",
        '{"$topicIds": {"in": "x"}}',
        '{"orders":{"0":"23"}}',
        '{"orders":{"zero":23}}',
        "[1]",
        "not JSON",
        "null",
        "[" * 100_000,
    ],
)
def test_lines_that_name_nothing(line: str) -> None:
    assert naming_of(line) is Naming.NOTHING


def test_a_file_sources_line_names_an_entry_of_its_log() -> None:
    assert logged_files('{"logOffset":7}') == 7
    for line in (KAFKA, "7", '{"logOffset":"7"}', '{"logOffset":7,"more":1}', '{"logOffset":true}'):
        assert logged_files(line) is None


# ---- the rule ---------------------------------------------------------------------------------
FIRST = Fingerprint(KAFKA, 10, 77, "query-1", Naming.BATCH)


def expected(naming: Naming, *, same_number: bool, same_checksum: bool) -> Likeness:
    """The rule in COMMITS.md."""
    counts = {
        Naming.BATCH: True,
        Naming.END: same_number,
        Naming.NOTHING: same_number and same_checksum,
    }
    return Likeness.SAME if counts[naming] else Likeness.OTHER


@pytest.mark.parametrize(("naming", "rows", "checksum"), list(product(Naming, (10, 11), (77, 78))))
def test_how_far_rows_count_depends_on_what_the_lines_name(
    naming: Naming, rows: int, checksum: int
) -> None:
    one = FIRST._replace(naming=naming)
    other = one._replace(rows=rows, checksum=checksum)
    likeness = expected(naming, same_number=rows == 10, same_checksum=checksum == 77)
    assert one.likeness(other) is other.likeness(one) is likeness


@pytest.mark.parametrize("naming", Naming)
@pytest.mark.parametrize(
    ("change", "likeness"),
    [
        ({"query_id": "query-2"}, Likeness.ANOTHER_QUERY),
        ({"query_id": "query-2", "source": "other"}, Likeness.ANOTHER_QUERY),
        ({"source": '{"orders":{"0":24,"1":7}}'}, Likeness.OTHER),
        ({"files": "2, sha256 b"}, Likeness.OTHER),
    ],
)
def test_another_query_another_range_or_other_files_are_never_a_replay(
    naming: Naming, change: dict[str, str], likeness: Likeness
) -> None:
    one = FIRST._replace(naming=naming, files="1, sha256 a")
    assert one.likeness(one._replace(**change)) is likeness  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({}, True),
        ({"query_id": None}, True),
        ({"checksum": None}, True),
        ({"checksum": None, "rows": 11}, True),
        ({"source": None, "rows": 11}, False),
        ({"source": None, "checksum": 78}, False),
        ({"files": None, "checksum": 78}, False),
        ({"naming": Naming.NOTHING, "checksum": 78}, False),
    ],
)
def test_what_one_of_both_does_not_know_is_not_compared(
    change: dict[str, object], same: bool
) -> None:
    one = FIRST._replace(files="1, sha256 a")
    likeness = Likeness.SAME if same else Likeness.OTHER
    assert one.likeness(one._replace(**change)) is likeness  # type: ignore[arg-type]


def test_a_commit_of_an_earlier_release_is_recognised_by_its_lines_and_rows() -> None:
    old = Fingerprint(KAFKA, 10, None)
    assert old.likeness(FIRST) is Likeness.SAME
    assert old.likeness(FIRST._replace(rows=11)) is Likeness.OTHER


# ---- text, sums -------------------------------------------------------------------------------
def test_a_checksum_that_was_not_computed_is_not_printed() -> None:
    assert str(Fingerprint(None, 3, None)) == "3 rows"
    assert str(Fingerprint(None, 0, 0)) == "0 rows with checksum 0000000000000000"


def test_long_lines_are_kept_by_their_front_and_their_hash() -> None:
    one, other = "x" * 5000 + "1", "x" * 5000 + "2"
    kept = Fingerprint.of(BatchSource(one), 0, 0)
    assert len(kept.source or "") < 1100
    assert kept == Fingerprint.of(BatchSource(one), 0, 0)
    assert kept.likeness(Fingerprint.of(BatchSource(other), 0, 0)) is Likeness.OTHER


@given(st.lists(st.integers(0, 2**64 - 1)), st.randoms())
def test_checksum_does_not_depend_on_the_order(parts: list[int], random: Random) -> None:
    total = 0
    for part in parts:
        total = checksum_sum(total, part)
    random.shuffle(parts)
    again = 0
    for part in parts:
        again = checksum_sum(again, part)
    assert total == again < 2**64
