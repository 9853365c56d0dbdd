"""The decision file: a round trip, and invalid values."""

import json
from dataclasses import replace

import pytest

from streamlog.binary.sealed import SealedValues, seal
from streamlog.commits.decisions import (
    DecidedExtent,
    DecidedFile,
    DecidedPart,
    Decision,
    PartitionStanding,
    Standing,
    format_decision,
    parse_decision,
    parse_fingerprint,
)
from streamlog.commits.fingerprint import Fingerprint
from streamlog.commits.history import Ledger, LedgerEntry, Ledgers
from streamlog.commits.identity import CommitIdentity
from streamlog.errors import CorruptCheckpointError
from streamlog.fs.log_root import LogRoot
from streamlog.query.checkpoint import Naming
from streamlog.topic import TopicPartition
from tests.support.commits import ROOT, Scene

TOPIC_ID = "AAAAAAAAAAEAAAAAAAAAAg"
STAGED = "00000000000000000007-0000000003-0123456789abcdef"
PART = DecidedPart(
    topic_partition=TopicPartition("a-b", 3),
    topic_id=TOPIC_ID,
    base_offset=100,
    last_offset=109,
    leader_epoch=2,
    base_sequence=2**31 - 4,
    append_time=None,
    extents=(DecidedExtent(0, 0, 500, 2, 4), DecidedExtent(0, 500, 500, 1, 6)),
)
DECISION = Decision(
    identity=CommitIdentity("q/ä", 7),
    revision=1,
    fingerprint=Fingerprint("{…}", 10, 2**64 - 1, "query-1", Naming.BATCH, "1, sha256 a"),
    decided_ms=1_700_000_000_000,
    files=(DecidedFile(STAGED, 1000),),
    parts=(PART, replace(PART, topic_partition=TopicPartition("a-b", 11), append_time=5)),
    standing=Standing(
        number=9,
        last_version=7,
        unretired=2,
        unretired_since_ms=5,
        partitions={TopicPartition("a-b", 3): PartitionStanding(TOPIC_ID, 6, 110, 1000)},
    ),
)
PATH = "/p/q%2F%C3%A4@00000000000000000009"


def test_parse_inverts_format() -> None:
    assert parse_decision(format_decision(DECISION), PATH) == DECISION


def test_sequences_wrap_to_0() -> None:
    assert PART.last_sequence == 5
    assert PART.step == PartitionStanding(TOPIC_ID, 6, 110, 1000)
    assert replace(PART, base_sequence=2**31 - 10).step.next_sequence == 0


def test_a_decision_under_another_name_is_refused() -> None:
    for path in ("/p/q%2F%C3%A4@00000000000000000008", "/p/other@00000000000000000009"):
        with pytest.raises(CorruptCheckpointError, match="app and number"):
            parse_decision(format_decision(DECISION), path)


def body() -> dict[str, object]:
    found = json.loads(format_decision(DECISION).splitlines()[1])
    assert isinstance(found, dict)
    return found


def test_an_unharmed_body_sealed_again_is_taken() -> None:
    assert parse_decision(seal("decision", body()), PATH) == DECISION


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("app",), ""),
        (("app",), None),
        (("version",), -1),
        (("version",), 7.0),
        (("anonymous",), 0),
        (("revision",), "0"),
        (("fingerprint",), None),
        (("fingerprint", "row_checksum"), "xyz"),
        (("fingerprint", "row_checksum"), "-000000000000001"),
        (("fingerprint", "row_checksum"), 7),
        (("fingerprint", "naming"), "everything"),
        (("fingerprint", "query_id"), 7),
        (("fingerprint", "rows"), -3),
        (("files",), [{"name": "../../../etc/passwd", "size": 1000}]),
        (("files",), [{"name": STAGED, "size": 999}]),
        (("files",), []),
        (("parts", 0, "topic"), "../x"),
        (("parts", 0, "topic"), "a-b-3"),
        (("parts", 0, "partition"), 2**31),
        (("parts", 0, "partition"), 12),
        (("parts", 0, "topic_id"), "short"),
        (("parts", 0, "base_offset"), 101),
        (("parts", 0, "last_offset"), 2**63),
        (("parts", 0, "leader_epoch"), -1),
        (("parts", 0, "base_sequence"), 2**31),
        (("parts", 0, "last_sequence"), 6),
        (("parts", 0, "append_time"), -1),
        (("parts", 0, "extents"), []),
        (("parts", 0, "extents"), [[0, 0, 500, 2]]),
        (("parts", 0, "extents"), [[1, 0, 500, 2, 10]]),
        (("parts", 0, "extents"), [[0, 2**62, 2**62, 2, 10]]),
        (("parts", 0, "extents"), [[0, -1, 500, 2, 10]]),
        (("standing", "number"), 0),
        (("standing", "partitions"), [1]),
        (("standing", "partitions", 0, "next_sequence"), 2**31),
    ],
    ids=str,
)
def test_an_impossible_value_is_refused(where: tuple[object, ...], value: object) -> None:
    values: dict[object, object] = dict(body())
    inner = values
    for step in where[:-1]:
        inner = inner[step]
    inner[where[-1]] = value
    with pytest.raises(CorruptCheckpointError):
        parse_decision(seal("decision", values), PATH)


# ---- the ledger ---------------------------------------------------------------------------------
def decision(number: int, version: int) -> Decision:
    standing = replace(DECISION.standing, number=number, last_version=version)
    return replace(DECISION, identity=CommitIdentity("q/ä", version), standing=standing)


def test_a_ledger_comes_back_as_it_was_stored() -> None:
    scene = Scene()
    ledgers = Ledgers(scene.log_root)
    assert ledgers.load("q/ä") is None
    ledger = Ledger.empty("q/ä").with_decisions([decision(1, 4), decision(2, 5)], dropped=[])
    ledgers.store(ledger)
    assert ledgers.load("q/ä") == ledger
    assert [entry.version for entry in ledger.entries] == [4, 5]
    assert ledger.standing.unretired == 0
    assert [at.unretired_size for at in ledger.standing.partitions.values()] == [0]
    for seed in range(5):
        after = scene.after_crash(power=True, seed=seed)
        assert Ledgers(LogRoot.at(ROOT, fs=after.fs)).load("q/ä") == ledger


def test_a_fingerprint_of_an_earlier_release_is_read_without_its_checksum() -> None:
    """Its checksum was computed differently, or not computed and written as 0."""
    values = SealedValues({"source": "{…}", "rows": 10, "checksum": "0" * 16}, "f")
    assert parse_fingerprint(values) == Fingerprint("{…}", 10, None)


def test_a_ledger_keeps_the_last_100_entries() -> None:
    ledger = Ledger.empty("q/ä")
    for number in range(1, 151):
        ledger = ledger.with_decisions([decision(number, number)], dropped=[])
    assert len(ledger.entries) == 100
    assert ledger.entries[0] == LedgerEntry(51, 1, DECISION.fingerprint)


def test_a_ledger_forgets_partitions_that_are_no_more() -> None:
    ledger = Ledger.empty("q/ä").with_decisions(
        [decision(1, 4)], dropped=[TopicPartition("a-b", 3)]
    )
    assert ledger.standing.partitions == {}


def test_a_ledger_of_another_app_is_refused() -> None:
    scene = Scene()
    ledgers = Ledgers(scene.log_root)
    ledgers.store(Ledger.empty("one").with_decisions([decision(1, 1)], dropped=[]))
    scene.fs.rename(f"{ledgers.path}/one", f"{ledgers.path}/two")
    with pytest.raises(CorruptCheckpointError, match="app"):
        ledgers.load("two")


def test_a_ledger_knows_which_decisions_are_retired() -> None:
    scene = Scene()
    ledgers = Ledgers(scene.log_root)
    assert not ledgers.has_retired(decision(1, 4))
    ledgers.store(Ledger.empty("q/ä").with_decisions([decision(1, 4)], dropped=[]))
    assert ledgers.has_retired(decision(1, 4))
    assert not ledgers.has_retired(decision(2, 5))
