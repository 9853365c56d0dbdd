"""Small roots in a store in memory, for the tests of this folder."""

import random
from collections.abc import Sequence

from streamlog.bucket.actions import (
    Action,
    BucketExtent,
    Commit,
    CommitPart,
    CreateRoot,
    CreateTopic,
)
from streamlog.bucket.journal import RootJournal
from streamlog.bucket.keys import staged_key
from streamlog.bucket.state import RootState
from streamlog.clock import ManualClock
from streamlog.commits.fingerprint import Fingerprint
from streamlog.commits.identity import CommitIdentity
from streamlog.store.api import ObjectStore
from streamlog.topic import TopicPartition

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
ORDERS = TopicPartition("orders", 0)


def journal_of(store: ObjectStore, seed: int = 0) -> RootJournal:
    return RootJournal(store, ManualClock(), random=random.Random(seed))


def made_root(store: ObjectStore) -> RootJournal:
    """Create a root with the topic `orders`, in two entries."""
    journal = journal_of(store)
    journal.change(lambda state: ([CreateRoot(root_id="r", config={})], None))
    create = CreateTopic(topic="orders", topic_id=TOPIC_ID, partitions=2, config={"a": "b"})
    journal.change(lambda state: ([create], None))
    return journal


def commit_to(state: RootState, app: str, version: int, *, records: int = 3) -> Sequence[Action]:
    """Return a commit of one extent to the first partition."""
    key = staged_key(app, f"{version}-{random.getrandbits(64):016x}-{7:020d}")
    part = CommitPart(
        topic_partition=ORDERS,
        topic_id=TOPIC_ID,
        base_offset=state.partitions[ORDERS].end_offset,
        leader_epoch=0,
        extents=(BucketExtent(0, 0, 100, 1, records, -1),),
    )
    return [
        Commit(
            identity=CommitIdentity(app, version),
            revision=0,
            made_ms=7,
            fingerprint=Fingerprint(None, records, version),
            files=(key,),
            parts=(part,),
        )
    ]


def commit(journal: RootJournal, app: str, version: int) -> bool:
    """Commit a version unless the app has it; return whether it was new."""

    def decide(state: RootState) -> tuple[Sequence[Action], bool]:
        ledger = state.apps.get(app)
        if ledger is not None and ledger.standing.last_version >= version:
            return [], False
        return commit_to(state, app, version), True

    return journal.change(decide)
