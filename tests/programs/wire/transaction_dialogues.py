"""What a gateway and a broker are asked about transactions, in good states and bad ones."""

from collections.abc import Mapping
from typing import Any, Final

from tests.programs.wire.dialogue import EVERY_VERSION, TOPIC, Ask, Dialogue, Records

__all__ = ["TRANSACTION_DIALOGUES"]

_NO_PRODUCER: Final = 99_000_000
_STARTED: Final = {"producer": "producerId", "epoch": "producerEpoch"}
_WITHOUT_NEW_EPOCHS: Final = (0, 4)  # EndTxn before KIP-890
_WITH_NEW_EPOCHS: Final = (5, 5)
_IMPLICIT: Final = (12, 13)  # Produce that adds its partition (KIP-890)
_EXPLICIT: Final = (3, 11)


def _starts(
    what: str,
    keeps: Mapping[str, str] = {},
    versions: tuple[int, int] = EVERY_VERSION,
    **changes: Any,
) -> Ask:
    values = {"transactionalId": "$id", "transactionTimeoutMs": 60_000, **changes}
    return Ask(what, "InitProducerId", values, keeps, versions)


def _adds(
    what: str,
    *,
    id: Any = "$id",
    producer: Any = "$producer",
    epoch: Any = "$epoch",
    topic: str = TOPIC,
    partitions: tuple[int, ...] = (0,),
    verifies: bool = False,
) -> Ask:
    topics = [{"name": topic, "partitions": list(partitions)}]
    one = {
        "transactionalId": id,
        "producerId": producer,
        "producerEpoch": epoch,
        "verifyOnly": verifies,
        "topics": topics,
    }
    values = {
        "transactions": [one],
        "v3AndBelowTransactionalId": id,
        "v3AndBelowProducerId": producer,
        "v3AndBelowProducerEpoch": epoch,
        "v3AndBelowTopics": topics,
    }
    return Ask(what, "AddPartitionsToTxn", values, versions=(4 if verifies else 0, 99))


def _adds_offsets(what: str, **changes: Any) -> Ask:
    values = {
        "transactionalId": "$id",
        "producerId": "$producer",
        "producerEpoch": "$epoch",
        "groupId": "$group",
    }
    return Ask(what, "AddOffsetsToTxn", {**values, **changes})


def _commits_offsets(what: str, offset: int = 7, topic: str = TOPIC, **changes: Any) -> Ask:
    committed = [
        {
            "partitionIndex": number,
            "committedOffset": offset,
            "committedLeaderEpoch": 0,
            "committedMetadata": "note",
        }
        for number in (0, 9)
    ]
    values = {
        "transactionalId": "$id",
        "groupId": "$group",
        "producerId": "$producer",
        "producerEpoch": "$epoch",
        "topics": [{"name": topic, "partitions": committed}],
    }
    return Ask(what, "TxnOffsetCommit", {**values, **changes})


def _ends(
    what: str, *, is_commit: bool = True, keeps: bool = False, **changes: Any
) -> tuple[Ask, ...]:
    """Return the end in the versions that answer with a new epoch, and in those that do not."""
    values = {
        "transactionalId": "$id",
        "producerId": "$producer",
        "producerEpoch": "$epoch",
        "committed": is_commit,
        **changes,
    }
    return (
        Ask(what, "EndTxn", values, _STARTED if keeps else {}, _WITH_NEW_EPOCHS),
        Ask(what, "EndTxn", values, {}, _WITHOUT_NEW_EPOCHS),
    )


def _writes(
    what: str,
    sequence: int,
    *,
    partition: int = 0,
    versions: tuple[int, int] = EVERY_VERSION,
    **producer: str,
) -> Ask:
    partitions = [{"index": partition, "records": Records(sequence, **producer)}]
    values = {
        "transactionalId": "$id",
        "acks": -1,
        "timeoutMs": 10_000,
        "topicData": [{"name": TOPIC, "topicId": "$topic_id", "partitionData": partitions}],
    }
    return Ask(what, "Produce", values, versions=versions)


def _describes(what: str, *ids: str) -> Ask:
    return Ask(what, "DescribeTransactions", {"transactionalIds": list(ids)})


def _settles(state: str) -> Ask:
    """Return the step that waits for the markers: a broker writes them after its answer."""
    wanted = ("transactionStates.0.transactionState", state)
    return _describes(f"until it is {state}", "$id")._replace(until=wanted)


def _describes_producers(what: str, topic: str = TOPIC) -> Ask:
    topics = [{"name": topic, "partitionIndexes": [0, 9]}]
    return Ask(what, "DescribeProducers", {"topics": topics})


def _lists(what: str, **filters: Any) -> Ask:
    values = {
        "stateFilters": [],
        "producerIdFilters": ["$producer"],
        "durationFilter": -1,
        "transactionalIdPattern": None,
    }
    return Ask(what, "ListTransactions", {**values, **filters})


def _fetches(what: str, *, is_stable: bool) -> Ask:
    wanted = [{"name": TOPIC, "topicId": "$topic_id", "partitionIndexes": [0]}]
    asked = {"groupId": "$group", "memberId": None, "memberEpoch": -1, "topics": wanted}
    values = {"groupId": "$group", "topics": wanted, "groups": [asked], "requireStable": is_stable}
    versions = (7, 99) if is_stable else EVERY_VERSION
    return Ask(what, "OffsetFetch", values, versions=versions, repeats=False)


starts: Final = Dialogue(
    "txn_starts",
    _starts("of no id", transactionalId=""),
    _starts("with no timeout", transactionTimeoutMs=0),
    _starts("with a timeout too large", transactionTimeoutMs=2**31 - 1),
    _starts("of an unknown id and producer", producerId=_NO_PRODUCER, producerEpoch=3),
    _starts("with an epoch but no producer", producerEpoch=3),
    _starts("with a producer but no epoch", producerId=3),
    _starts("first", _STARTED, transactionalId="$id"),
    _starts("again", _STARTED),
    _starts("that goes on", _STARTED, (3, 99), producerId="$producer", producerEpoch="$epoch"),
    _starts("that repeats it", {}, (3, 99), producerId="$producer", producerEpoch="$epoch+-1"),
    _starts("of a wrong epoch", {}, (3, 99), producerId="$producer", producerEpoch=77),
    _starts("of a wrong producer", {}, (3, 99), producerId=_NO_PRODUCER, producerEpoch=0),
    _describes("started", "$id"),
    _describes("unknown, none", "missing", ""),
    _lists("started"),
)

transaction: Final = Dialogue(
    "transaction",
    _starts("of a producer", _STARTED),
    *_ends("of nothing"),
    _adds("of an unknown topic", topic="missing"),
    _adds("of an unknown partition", partitions=(0, 9)),
    _adds("of an unknown id", id="unknown"),
    _adds("of a wrong producer", producer=_NO_PRODUCER),
    _adds("of a wrong epoch", epoch=77),
    _adds("verified before it is added", verifies=True),
    _writes("before it is added", 0, versions=_EXPLICIT),
    _adds("first"),
    _adds("again"),
    _adds("verified", verifies=True),
    _adds("verified, and one that is not", partitions=(0, 1), verifies=True),
    _writes("in the transaction", 0),
    _writes("of a partition that was not added", 0, partition=1, versions=_EXPLICIT),
    _writes("out of order", 5),
    _describes("ongoing", "$id"),
    _describes_producers("ongoing"),
    _lists("ongoing", stateFilters=["Ongoing"]),
    _lists("by an unknown state", stateFilters=["None", "Empty"]),
    _lists("by pattern", transactionalIdPattern="trans.*"),
    _lists("by a bad pattern", transactionalIdPattern="("),
    _lists("by duration", durationFilter=1_000_000),
    *_ends("of a wrong epoch", producerEpoch=77),
    *_ends("of a wrong producer", producerId=_NO_PRODUCER),
    *_ends("of an unknown id", transactionalId="unknown"),
    *_ends("of no id", transactionalId=""),
    *_ends("committed", keeps=True),
    *_ends("committed again"),
    _settles("CompleteCommit"),
    _describes_producers("ended"),
    *_ends("aborted after the commit", is_commit=False),
    _describes_producers("of an unknown topic", "missing"),
)

aborted: Final = Dialogue(
    "txn_aborted",
    _starts("of a producer", _STARTED),
    _adds("first"),
    _writes("in the transaction", 0),
    *_ends("aborted", is_commit=False, keeps=True),
    *_ends("aborted again", is_commit=False, keeps=True),
    _settles("CompleteAbort"),
    _adds("of the next transaction"),
    _starts("that fences the other", {"next": "producerEpoch"}),
    _adds("fenced"),
    _writes("fenced", 0),
    _commits_offsets("fenced"),
    _adds_offsets("fenced"),
    *_ends("fenced"),
    _describes("fenced", "$id"),
)

offsets: Final = Dialogue(
    "txn_offsets",
    _starts("of a producer", _STARTED),
    _adds_offsets("of an unknown id", transactionalId="unknown"),
    _adds_offsets("of a wrong epoch", producerEpoch=77),
    _adds_offsets("of a wrong producer", producerId=_NO_PRODUCER),
    _adds_offsets("of no group", groupId=""),
    _commits_offsets("before it is added")._replace(versions=(0, 4), repeats=False),
    _adds_offsets("first"),
    _adds_offsets("again"),
    _commits_offsets("added"),
    _commits_offsets("of an unknown topic", topic="missing"),
    _commits_offsets("of a wrong epoch", producerEpoch=77),
    _commits_offsets("of a wrong producer", producerId=_NO_PRODUCER)._replace(repeats=False),
    _commits_offsets("of an unknown id", transactionalId="unknown")._replace(repeats=False),
    _commits_offsets("of a generation", generationId=4, memberId="x"),
    _commits_offsets("of a member without a generation", memberId="x"),
    _fetches("while it is open", is_stable=False),
    _fetches("stable, while it is open", is_stable=True),
    _describes("with offsets", "$id"),
    *_ends("committed", keeps=True),
    _settles("CompleteCommit"),
    _fetches("committed", is_stable=False),
    _adds_offsets("of the next transaction"),
    _commits_offsets("of the next transaction", 9),
    *_ends("aborted", is_commit=False, keeps=True),
    _settles("CompleteAbort"),
    _fetches("after the abort", is_stable=False),
)

TRANSACTION_DIALOGUES: Final = (starts, transaction, aborted, offsets)
