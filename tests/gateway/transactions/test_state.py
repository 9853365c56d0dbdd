"""What each request makes of a transactional id, walked at random and case by case."""

import random
from dataclasses import replace

import pytest

from streamlog.gateway.coordinator_log import TxnProducer
from streamlog.gateway.error_codes import ErrorCode
from streamlog.gateway.transactions import state as states
from streamlog.gateway.transactions.state import Ending, TransactionMetadata, TransactionState
from streamlog.protocol.internal_topics import Decoder, parse_internal
from streamlog.topic import TopicPartition

PARTITION = TopicPartition("orders", 3)
LAST_EPOCH = 32766  # the last one that a client gets


def of(state: TransactionState = TransactionState.EMPTY, epoch: int = 0) -> TransactionMetadata:
    has_some = state not in (TransactionState.EMPTY,) and not state.is_complete
    return TransactionMetadata(
        transactional_id="t",
        producer_id=7,
        producer_epoch=epoch,
        timeout_ms=1000,
        state=state,
        updated_ms=5,
        started_ms=5 if has_some else -1,
        partitions=frozenset([PARTITION]) if has_some else frozenset(),
    )


def ending(epoch: int, *, commit: bool = True, version: int = 2, producer_id: int = 7) -> Ending:
    return Ending(TxnProducer(producer_id, epoch), commit, version, new_producer_id=99)


@pytest.mark.parametrize("state", list(TransactionState))
def test_records_keep_the_state(state: TransactionState) -> None:
    known = replace(of(state), client_version=2, previous_producer_id=6, next_producer_id=8)
    key, value = known.record
    parsed = parse_internal(Decoder.TRANSACTIONS, key, value)
    assert parsed is not None and parsed.value is not None
    assert parsed.key == {"transactionalId": "t"}
    assert TransactionMetadata.of_record("t", parsed.value) == known
    assert known.tombstone == (key, None)


def test_labels_are_kafkas() -> None:
    assert [each.label for each in TransactionState] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]


def test_exhausted_epochs_go_on_with_another_producer_id() -> None:
    known = of(TransactionState.ONGOING, LAST_EPOCH)
    decided = states.end(known, ending(LAST_EPOCH), 9)
    assert isinstance(decided, TransactionMetadata)
    assert (decided.producer_id, decided.producer_epoch) == (7, LAST_EPOCH + 1)
    done = states.complete(decided, 10)
    assert (done.producer_id, done.producer_epoch) == (99, 0)
    assert states.end(done, ending(LAST_EPOCH), 11) is ErrorCode.NONE  # repeated
    assert states.end(done, ending(LAST_EPOCH - 1), 11) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("expected", [None, TxnProducer(7, LAST_EPOCH)])
def test_a_start_with_exhausted_epochs_gets_another_producer_id(
    expected: TxnProducer | None,
) -> None:
    known = of(TransactionState.COMPLETE_COMMIT, LAST_EPOCH)
    started = states.initialize(
        known, timeout_ms=1, expected=expected, new_producer_id=99, now_ms=6
    )
    assert isinstance(started, TransactionMetadata)
    assert (started.producer_id, started.producer_epoch) == (99, 0)
    assert started.previous_producer_id == 7


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("commit", [True, False])
def test_a_prepared_transaction_only_repeats(version: int, commit: bool) -> None:
    known = of(TransactionState.ONGOING, 4)
    decided = states.end(known, ending(4, commit=commit, version=version), 9)
    assert isinstance(decided, TransactionMetadata)
    again = states.end(decided, ending(4, commit=commit, version=version), 9)
    assert again is ErrorCode.CONCURRENT_TRANSACTIONS
    other = states.end(decided, ending(4, commit=not commit, version=version), 9)
    assert other is ErrorCode.INVALID_TXN_STATE
    producer = TxnProducer(7, decided.producer_epoch)
    assert states.verify_partitions(decided, producer, frozenset()) == 51


def test_a_fenced_epoch_is_not_taken_for_a_repeated_request() -> None:
    fenced = states.fence(of(TransactionState.ONGOING, 4), 9)
    for known in (fenced, states.complete(fenced, 10)):
        for commit in (True, False):
            for version in (0, 2):
                answer = states.end(known, ending(4, commit=commit, version=version), 9)
                assert answer is ErrorCode.PRODUCER_FENCED


def test_random_walks_keep_the_rules() -> None:
    """Epochs never go back, an end comes after a begin, and one client at most may go on."""
    for seed in range(300):
        _walk(random.Random(seed))


def _walk(choose: random.Random) -> None:
    known = replace(of(epoch=-1), started_ms=-1)
    client, ids = TxnProducer(-1, -1), iter(range(100, 10_000))
    greatest: dict[int, int] = {}
    for now_ms in range(6, 120):
        if known.state.is_prepared:
            before, known = known, states.complete(known, now_ms)
            assert known.state.is_complete and not known.partitions
            assert before.producer_epoch <= known.producer_epoch or known.producer_epoch == 0
        step = choose.choice(["init", "continue", "add", "commit", "abort", "time out", "jump"])
        decided: TransactionMetadata | ErrorCode = ErrorCode.NONE
        if step in ("init", "continue"):
            expected = client if step == "continue" and client.producer_id >= 0 else None
            decided = states.initialize(
                known, timeout_ms=5, expected=expected, new_producer_id=next(ids), now_ms=now_ms
            )
            if decided is ErrorCode.CONCURRENT_TRANSACTIONS:
                assert known.state is TransactionState.ONGOING
                decided = states.fence(known, now_ms)
            elif isinstance(decided, TransactionMetadata):
                client = TxnProducer(decided.producer_id, decided.producer_epoch)
        elif step == "add":
            decided = states.add_partitions(known, client, frozenset([PARTITION]), now_ms)
        elif step in ("commit", "abort"):
            wanted = Ending(client, step == "commit", choose.choice([0, 2]), next(ids))
            was = known.state
            decided = states.end(known, wanted, now_ms)
            if isinstance(decided, TransactionMetadata):
                assert decided.state.is_prepared
                assert was is TransactionState.ONGOING or not wanted.is_commit
                done = states.complete(decided, now_ms)
                client = TxnProducer(done.producer_id, done.producer_epoch)
        elif step == "time out" and known.is_timed_out(now_ms):
            decided = states.fence(known, now_ms)
        elif step == "jump" and known.state is TransactionState.EMPTY and known.producer_epoch >= 0:
            known = replace(known, producer_epoch=max(known.producer_epoch, LAST_EPOCH - 1))
            client = TxnProducer(known.producer_id, known.producer_epoch)
        if isinstance(decided, TransactionMetadata):
            known = decided
            assert known.producer_epoch >= greatest.get(known.producer_id, -1)
            greatest[known.producer_id] = known.producer_epoch
            if known.state is TransactionState.ONGOING:
                assert known.started_ms >= 0 and known.producer_epoch <= LAST_EPOCH
