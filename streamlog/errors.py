"""What can go wrong, in four kinds that say what to do about it.

    StreamLogError
    ├─ InvalidRequestError   fix the call
    ├─ CorruptDataError      restore or cut: bytes on the disk are not what they should be
    ├─ FencedError           somebody else was faster: learn the new state and decide again
    └─ UnavailableError      try again later, or mend the disk

The leaves say what happened. `kafka_code` is the number of Kafka's own error
(`org.apache.kafka.common.protocol.Errors`) where there is one, else -1.
"""

import shlex
from typing import Any, ClassVar, Final

NO_KAFKA_CODE: Final = -1  # Errors.UNKNOWN_SERVER_ERROR


class StreamLogError(Exception):
    """Everything streamlog raises on purpose.

    Args:
        what: What happened, as a clause without a full stop.
        path: The file or directory it happened in.
        position: Byte position in that file.
        offset: Record offset concerned.
        got: What was found.
        expected: What would have been right.
        hint: What to do or to type next; the command line prints it after `Try:`, str() last.
    """

    kafka_code: ClassVar[int] = NO_KAFKA_CODE

    def __init__(
        self,
        what: str,
        *,
        path: str | None = None,
        position: int | None = None,
        offset: int | None = None,
        got: object = None,
        expected: object = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.path = path
        self.position = position
        self.offset = offset
        self.got = got
        self.expected = expected
        self.hint = hint

    def __str__(self) -> str:
        return self.sentence if self.hint is None else f"{self.sentence}; {self.hint}"

    @property
    def sentence(self) -> str:
        """All but the hint: what, where, got, expected."""
        parts = [self.what]
        if self.path is not None:
            where = f"in {self.path}"
            if self.position is not None:
                where += f" at byte {self.position}"
            parts.append(where)
        elif self.position is not None:
            parts.append(f"at byte {self.position}")
        if self.offset is not None:
            parts.append(f"at offset {self.offset}")
        text = " ".join(parts)
        details = []
        if self.got is not None:
            details.append(f"got {self.got}")
        if self.expected is not None:
            details.append(f"expected {self.expected}")
        return f"{text}: {', '.join(details)}" if details else text

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.what, self.__dict__.copy()))


def command_at(root: str, verb: str) -> str:
    """Return the line to type that does something to a log root, for a hint.

    Args:
        root: The root's path, with spaces or whatever a shell would take for its own.
        verb: The rest of the line.
    """
    return f"streamlog --path {shlex.quote(root)} {verb}"


def _rebuild(kind: type[StreamLogError], what: str, state: dict[str, Any]) -> StreamLogError:
    error = kind.__new__(kind)
    Exception.__init__(error, what)
    error.__dict__.update(state)
    return error


# ---- fix the call ---------------------------------------------------------------------------
class InvalidRequestError(StreamLogError):
    """The call cannot be served as it stands; the same call will fail again."""

    kafka_code = 42


class OffsetOutOfRangeError(InvalidRequestError):
    """An offset below the log start or above the log end."""

    kafka_code = 1


class UnknownTopicError(InvalidRequestError):
    """No such root, topic or partition."""

    kafka_code = 3


class MessageTooLargeError(InvalidRequestError):
    """A batch above `max.message.bytes`."""

    kafka_code = 10


class InvalidTopicError(InvalidRequestError):
    """A name Kafka would not take as a topic, or one that would deceive."""

    kafka_code = 17


class RecordListTooLargeError(InvalidRequestError):
    """An append above `segment.bytes`."""

    kafka_code = 18


class InvalidTimestampError(InvalidRequestError):
    """A timestamp outside the topic's bounds, or one that the target type cannot hold."""

    kafka_code = 32


class TopicExistsError(InvalidRequestError):
    """The topic is there already."""

    kafka_code = 36


class InvalidPartitionsError(InvalidRequestError):
    """An impossible number of partitions."""

    kafka_code = 37


class InvalidConfigError(InvalidRequestError):
    """An unknown config key, or a value outside its bounds."""

    kafka_code = 40


class UnsupportedForMessageFormatError(InvalidRequestError):
    """The message format cannot hold what was asked of it."""

    kafka_code = 43


class PolicyViolationError(InvalidRequestError):
    """The topic's `cleanup.policy` forbids it."""

    kafka_code = 44


class UnsupportedCompressionError(InvalidRequestError):
    """An unknown codec, or one that the message format cannot hold."""

    kafka_code = 76


class InvalidRecordError(InvalidRequestError):
    """A record or batch that a leader refuses."""

    kafka_code = 87


class UnexpectedAppendOffsetError(InvalidRequestError):
    """A follower append that does not start at or after the log end."""


class InvalidOptionError(InvalidRequestError):
    """An unknown, misspelt or senseless option."""


# ---- restore or cut -------------------------------------------------------------------------
class CorruptDataError(StreamLogError):
    """Bytes on the disk are not what they should be."""

    kafka_code = 2


class CorruptRecordError(CorruptDataError):
    """A batch or record whose checksum or structure is wrong."""


class CorruptIndexError(CorruptDataError):
    """An index that cannot belong to its segment; it can be rebuilt from the log."""


class CorruptSnapshotError(CorruptDataError):
    """A producer snapshot that cannot be read; an older one or the log replaces it."""


class CorruptCheckpointError(CorruptDataError):
    """A checkpoint, metadata or decision file that cannot be read."""


class LimitExceededError(CorruptDataError):
    """Bytes that claim more than any sound log would hold, such as a decompression bomb."""


# ---- learn the new state --------------------------------------------------------------------
class FencedError(StreamLogError):
    """Somebody else has moved on; learn the new state before deciding again."""

    kafka_code = 74


class OutOfOrderSequenceError(FencedError):
    """A producer's batch that does not follow its last one."""

    kafka_code = 45


class InvalidProducerEpochError(FencedError):
    """A batch or marker of an older producer epoch."""

    kafka_code = 47


class InvalidTxnStateError(FencedError):
    """A batch that its producer's transaction does not allow."""

    kafka_code = 48


class TransactionCoordinatorFencedError(FencedError):
    """A marker of an older transaction coordinator."""

    kafka_code = 52


class InconsistentTopicIdError(FencedError):
    """The topic was deleted and made again: another topic of the same name."""

    kafka_code = 103


class DataLossError(FencedError):
    """Records that a reader counted on are gone: aged out, cut off, or of a deleted topic."""

    kafka_code = 1


class CommitMismatchError(FencedError):
    """A commit whose identity stands already, with another fingerprint or out of order."""


# ---- try again later ------------------------------------------------------------------------
class UnavailableError(StreamLogError):
    """It cannot be done now; the request itself may be sound."""

    kafka_code = 5


class NotEnoughReplicasError(UnavailableError):
    """Fewer replicas in sync than `min.insync.replicas`."""

    kafka_code = 19


class LockTimeoutError(UnavailableError):
    """Another process holds the lock; names the holder and its age."""

    kafka_code = 7


class StorageError(UnavailableError):
    """The file system refused an operation. `errno` and `operation` say which and why."""

    kafka_code = 56

    def __init__(self, what: str, *, errno: int = 0, operation: str = "", **context: Any) -> None:
        super().__init__(what, **context)
        self.errno = errno
        self.operation = operation


class FileMissingError(StorageError):
    """A file or directory that is not there (ENOENT)."""


class FileExistsAlreadyError(StorageError):
    """A file or directory that is there already (EEXIST)."""


class DiskFullError(StorageError):
    """No space or no quota left (ENOSPC, EDQUOT, EFBIG)."""


class PoisonedError(StorageError):
    """A handle whose fsync failed: nothing it says can be believed any more; open anew."""


class UnknownOutcomeError(UnavailableError):
    """The append may or may not have happened, as a whole or up to some whole batch."""
