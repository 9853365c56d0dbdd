"""The steps of a log, drawn one by one from the state of the log at that time."""

import base64
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from streamlog.config.log_config import LogConfig
from streamlog.records.builder import BatchBuilder
from streamlog.records.layout import RECORD_BATCH_OVERHEAD
from streamlog.records.record import CompressionType, Header, Record
from tests.programs.compat.answers import encoded
from tests.support.batches import message_set

__all__ = ["NOW", "Script", "Step", "StandingOfLog"]

NOW = 1_700_000_000_000
HOUR_MS = 3_600_000
# A third of a script of these is still shorter than the expiration of producers.
LONG_MS = 2_400_000
MAX_SEQUENCE = 2**31 - 1
PRODUCERS = (7, 8, 9, 2**40)
KEYS = (b"", b"a", b"b", b"c", b"d", b"key", b"another key")
SIX_KEYS = 24 * 6  # bytes that a cleaner needs for this many
Step = dict[str, Any]  # in the oracle's notation


class StandingOfLog(NamedTuple):
    """The state of the log before the next step.

    Attributes:
        end_offset: The log end.
        leader_epoch: The latest epoch.
        ends_with_a_batch: False after a truncation below the log start, which leaves the log end
            above the last batch: the next opening begins a segment there.
        batch_ends: The offsets after its batches. After a truncation elsewhere, Kafka's log end
            stays there until it opens the log again; ours is after the last batch at once.
    """

    end_offset: int
    leader_epoch: int
    ends_with_a_batch: bool
    batch_ends: tuple[int, ...]


class Producer:
    """A producer's own state; after a refusal it starts a new epoch."""

    def __init__(self, random: Random) -> None:
        self.epoch = random.choice((0, 3, 32_000))
        self.sequence = random.choice((0, 0, MAX_SEQUENCE - 4))
        self.is_in_transaction = False
        self.last: Step | None = None

    def start_anew(self) -> None:
        """Continue as after a restart."""
        self.epoch += 1
        self.sequence = 0
        self.last = None


class Script:
    """Draws the settings of a partition, and one step after another.

    Attributes:
        is_exact: Whether both sides must write the same bytes: batches are built once, or are not
            compressed. Otherwise each side builds them, and compressors may differ.
        is_interrupted: Whether the log is truncated, or closed and reopened, on the way. Kafka then
            forgets the number of bytes since the last index entry; we do not.
        has_deleted: Whether records were deleted or compacted away.
        is_compacted: Whether the log is cleaned on the way, which compresses batches again.
        is_roll_due: Whether the next step is a roll: Kafka may have begun a segment, or kept one
            that a truncation left empty, and we did not; then the segment before is cleaned unless
            it is the last.
        config: The partition's settings.
        now: The time of the next step.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self.is_compacted = random.random() < 0.2
        self.is_exact = not self.is_compacted and random.random() < 0.9
        self.is_interrupted = random.random() < 0.4
        self.has_deleted = self._is_cleaned = self.is_roll_due = False
        self._has_mistakes = random.random() < 0.4
        self.config = self._config()
        self.now = NOW
        self._producers = {each: Producer(random) for each in PRODUCERS}
        self._weights: dict[Callable[[StandingOfLog], Step], int] = {
            self._plain: random.choice((2, 6)),
            self._idempotent: random.choice((0, 4)),
            self._transactional: random.choice((0, 5)),
            self._marker: 3,
            self._followed: random.choice((0, 0, 4)),
            self._old: 0 if self.is_compacted else random.choice((0, 0, 0, 2)),
            self._roll: 1 + 2 * self.is_compacted,
            self._clean: 3 * self.is_compacted,
            self._delete: random.choice((0, 0, 1)),
            self._truncate: self.is_interrupted and random.choice((0, 1)),
            self._reopen: self.is_interrupted,
        }

    @property
    def _fills_indexes(self) -> bool:
        """Whether a full index may end a segment: only if both sides have the same entries."""
        return self.is_exact and not self.is_interrupted

    @property
    def has_plain_indexes(self) -> bool:
        """Whether indexes are as appends alone make them."""
        return not (self.is_interrupted or self.is_compacted)

    def _config(self) -> LogConfig:
        draw = self._random.choice
        codecs = ["producer", "producer", "uncompressed"]
        most = [600, 1_048_588, 1_048_588]
        if not self.is_exact:
            codecs += ["gzip", "snappy", "lz4", "zstd"]
            most = most[1:]
        return LogConfig().with_overrides(
            {
                "internal.segment.bytes": draw((700, 1500, 4000)) if self.is_exact else 1 << 20,
                "index.interval.bytes": draw((0, 100, 500, 4096)),
                "segment.index.bytes": draw((60, 120, 4000)) if self._fills_indexes else 4000,
                "segment.ms": draw((LONG_MS, 3 * HOUR_MS, 24_000 * HOUR_MS)),
                "max.message.bytes": draw(most),
                "message.timestamp.type": draw(("CreateTime", "CreateTime", "LogAppendTime")),
                "compression.type": draw(codecs),
                "cleanup.policy": "compact,delete" if self.is_compacted else "delete",
                "delete.retention.ms": draw((0, 2000, HOUR_MS)),
                "retention.ms": -1,
            }
        )

    # ---- the next step -------------------------------------------------------------------------
    def step(self, log: StandingOfLog) -> Step:
        """Return the next step."""
        self.now += self._random.choice((0, 1, 700, 30_000, LONG_MS))
        [make] = self._random.choices(list(self._weights), list(self._weights.values()))
        if self.is_roll_due:
            make = self._roll
        return {**make(log), "now": self.now, "leaderEpoch": log.leader_epoch}

    def learn(self, step: Step, outcome: int | str) -> None:
        """Record the outcome of a step: an offset, or the name of an error."""
        is_refused = isinstance(outcome, str)
        # Kafka's recovery forgets producers below the log start; ours does not.
        self._is_cleaned |= step["do"] == "clean"
        self.has_deleted |= step["do"] in ("clean", "delete")
        if step["do"] in ("truncate", "reopen"):
            for producer in self._producers.values():
                producer.start_anew()
        producer = self._producers.get(step.get("producerId", -1))
        if producer is None:
            return
        if is_refused:
            producer.is_in_transaction = outcome == "InvalidTxnStateError"
            producer.start_anew()
        elif "marker" in step:
            producer.is_in_transaction = False
            if step["producerEpoch"] != producer.epoch:
                producer.start_anew()
        else:
            producer.sequence = (step["baseSequence"] + step["count"]) % (MAX_SEQUENCE + 1)
            producer.is_in_transaction = step["isTransactional"]
            producer.last = step

    # ---- appends -------------------------------------------------------------------------------
    def _plain(self, log: StandingOfLog) -> Step:
        return self._batch({})

    def _idempotent(self, log: StandingOfLog) -> Step:
        return self._produced(is_transactional=False)

    def _transactional(self, log: StandingOfLog) -> Step:
        return self._produced(is_transactional=True)

    def _produced(self, *, is_transactional: bool) -> Step:
        draw = self._random
        identity, producer = draw.choice(list(self._producers.items()))
        if producer.last is not None and self._errs(0.2):
            return producer.last  # a retry
        sequence = producer.sequence
        if self._errs(0.1):
            sequence = draw.choice((0, (sequence + 1) % (MAX_SEQUENCE + 1), abs(sequence - 1)))
        return self._batch(
            {
                "producerId": identity,
                "producerEpoch": max(0, producer.epoch - self._errs(0.05)),
                "baseSequence": sequence,
                "isTransactional": is_transactional or producer.is_in_transaction,
            }
        )

    def _errs(self, probability: float) -> bool:
        return self._has_mistakes and self._random.random() < probability

    def _batch(self, producer: Step) -> Step:
        draw = self._random
        records = self._records(is_dated=bool(producer))
        codec = draw.choice(list(CompressionType))
        if self.is_exact and draw.random() < 0.5:
            builder = BatchBuilder(
                compression=codec,
                producer_id=producer.get("producerId", -1),
                producer_epoch=producer.get("producerEpoch", -1),
                base_sequence=producer.get("baseSequence", -1),
                is_transactional=producer.get("isTransactional", False),
            )
            content: Step = {"bytes": self._built(builder, records)}
            if not self._shrinks_to_fit(content["bytes"]):
                return {"do": "append", "count": len(records), **producer, **content}
        name = "none" if self.is_exact else codec.name.lower()
        content = {"records": [encoded(each) for each in records], "compression": name}
        return {"do": "append", "count": len(records), **producer, **content}

    def _shrinks_to_fit(self, built: str) -> bool:
        """Return whether a batch too large for a segment may fit after decompression.

        Kafka checks the size only then, we also do before.
        """
        size = len(base64.b64decode(built))
        is_too_large = size > self.config.effective_segment_bytes
        return is_too_large and self.config.compression_type == "uncompressed"

    def _marker(self, log: StandingOfLog) -> Step:
        draw = self._random
        opened = [each for each, its in self._producers.items() if its.is_in_transaction]
        identity = draw.choice(opened if opened and not self._errs(0.2) else PRODUCERS)
        return {
            "do": "append",
            "marker": draw.choice(("COMMIT", "ABORT")),
            "timestamp": self.now,
            "producerId": identity,
            "producerEpoch": self._producers[identity].epoch + (draw.random() < 0.3),
            "coordinatorEpoch": 2 - self._errs(0.2),
        }

    def _followed(self, log: StandingOfLog) -> Step:
        """Return batches of a remote leader, with some offsets missing, sometimes too low."""
        draw = self._random
        offset = max(0, log.end_offset - self._errs(0.1))
        epoch = log.leader_epoch + draw.choice((0, 0, 1, 3))
        data = b""
        # Kafka checks for a full index only before an append, so several batches could overfill it.
        for _ in range(1 if self._fills_indexes else draw.choice((1, 1, 2, 3))):
            offset += draw.choice((0, 0, 0, 5))
            records = [
                each._replace(offset=offset + 2 * at) for at, each in enumerate(self._records())
            ]
            last = offset + 2 * len(records)
            builder = BatchBuilder(
                base_offset=offset,
                last_offset=last,
                compression=draw.choice(list(CompressionType)),
                partition_leader_epoch=epoch,
            )
            data += base64.b64decode(self._built(builder, records))
            offset = last + 1
        if (
            len(data) > self.config.effective_segment_bytes
        ):  # Kafka accepts them from 4.5 on, as we do
            return self._plain(log)
        return {"do": "follow", "bytes": base64.b64encode(data).decode()}

    def _old(self, log: StandingOfLog) -> Step:
        """Return messages of format v0 or v1."""
        codecs = [codec for codec in CompressionType if codec is not CompressionType.ZSTD]
        data = message_set(
            self._random.choice((0, 1)),
            [each._replace(headers=()) for each in self._records()],
            base_offset=0,
            compression=CompressionType.NONE if self.is_exact else self._random.choice(codecs),
        )
        return {"do": "append", "bytes": base64.b64encode(data).decode()}

    # ---- other steps ---------------------------------------------------------------------------
    def _roll(self, log: StandingOfLog) -> Step:
        return {"do": "roll"}

    def _clean(self, log: StandingOfLog) -> Step:
        return {"do": "clean", "memory": self._random.choice((SIX_KEYS, 1 << 20))}

    def _delete(self, log: StandingOfLog) -> Step:
        """Delete records up to an offset, sometimes one above the end."""
        return {"do": "delete", "offset": self._random.randint(0, log.end_offset + self._errs(0.1))}

    def _truncate(self, log: StandingOfLog) -> Step:
        if self._is_cleaned:  # only committed records are cleaned, and they are never truncated
            return self._roll(log)
        cuts = (0, *log.batch_ends, log.end_offset + 1)
        return {"do": "truncate", "offset": self._random.choice(cuts)}

    def _reopen(self, log: StandingOfLog) -> Step:
        if not log.ends_with_a_batch:
            return self._plain(log)
        return {"do": "reopen", "clean": self.has_deleted or self._random.random() < 0.5}

    # ---- records -------------------------------------------------------------------------------
    def _records(self, *, is_dated: bool = False) -> list[Record]:
        """Return records; without a current timestamp, their producers expire soon."""
        return [
            self._record(is_dated=is_dated) for _ in range(self._random.choice((1, 1, 2, 3, 5, 12)))
        ]

    def _record(self, *, is_dated: bool) -> Record:
        draw = self._random
        is_odd = not is_dated and draw.random() < 0.02
        return Record(
            key=draw.choice(KEYS) if self.is_compacted else self._bytes(0, 12),
            value=self._bytes(0, draw.choice((1, 20, 20, 60, 250))),
            headers=tuple(
                Header(draw.choice(("", "a", "trace", "ключ")), self._bytes(0, 9))
                for _ in range(draw.choice((0, 0, 0, 1, 3)))
            ),
            timestamp=draw.choice((-1, 0)) if is_odd else self._timestamp(),
        )

    def _timestamp(self) -> int:
        return self.now - self._random.choice((0, 0, 1, 50, 5_000, 2 * HOUR_MS))

    def _bytes(self, least: int, most: int) -> bytes | None:
        draw = self._random
        size = draw.randint(least - 1, most)
        if size < 0:
            return None
        return draw.randbytes(size) if draw.random() < 0.5 else bytes(size)

    def _built(self, builder: BatchBuilder, records: list[Record]) -> str:
        for each in records:
            builder.append(each)
        data = bytearray(builder.build())
        if self._errs(0.03) and self.config.max_message_bytes > len(data):
            data[self._random.randrange(RECORD_BATCH_OVERHEAD, len(data))] ^= (
                1 << self._random.randrange(8)
            )
        return base64.b64encode(data).decode()
