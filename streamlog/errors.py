"""Errors, in four kinds that tell a caller what to do.

    StreamLogError
    ├─ InvalidRequestError   fix the call
    ├─ CorruptDataError      restore or repair: the bytes on disk are damaged
    ├─ FencedError           another writer was faster: read the new state and decide again
    └─ UnavailableError      retry later, or fix the disk

`kafka_code` is the number of the corresponding Kafka error
(`org.apache.kafka.common.protocol.Errors`), or -1 if there is none.
"""

import shlex
from collections.abc import Sequence
from typing import Any, ClassVar, Final

NO_KAFKA_CODE: Final = -1  # Errors.UNKNOWN_SERVER_ERROR


class StreamLogError(Exception):
    """Base class of all errors that streamlog raises.

    Args:
        what: What happened, without a full stop.
        path: The file or directory concerned.
        position: Byte position in the file.
        offset: The record offset concerned.
        got: The actual value.
        expected: The valid values.
        hint: What to do or type next; the command prints it after `Try:`, str() at the end.
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
        """Everything but the hint: what, where, got, expected."""
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
    """Return a shell command on a log root, for a hint.

    Args:
        root: Path of the root, unquoted.
        verb: The verb and its arguments.
    """
    return f"streamlog --path {shlex.quote(root)} {verb}"


def _rebuild(kind: type[StreamLogError], what: str, state: dict[str, Any]) -> StreamLogError:
    error = kind.__new__(kind)
    Exception.__init__(error, what)
    error.__dict__.update(state)
    return error


# ---- fix the call ---------------------------------------------------------------------------
class InvalidRequestError(StreamLogError):
    """An invalid request; repeating it fails again.

    Args:
        what: See `StreamLogError`, as for all other arguments.
        records: The indexes of the records of an append that break a rule.
    """

    kafka_code = 42

    def __init__(self, what: str, *, records: Sequence[int] = (), **context: Any) -> None:
        super().__init__(what, **context)
        self.records = records


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
    """A name that Kafka rejects for a topic, or one that looks like something else."""

    kafka_code = 17


class RecordListTooLargeError(InvalidRequestError):
    """An append above `segment.bytes`."""

    kafka_code = 18


class InvalidTimestampError(InvalidRequestError):
    """A timestamp outside the topic's bounds or the range of the target type."""

    kafka_code = 32


class TopicExistsError(InvalidRequestError):
    """The topic already exists."""

    kafka_code = 36


class InvalidPartitionsError(InvalidRequestError):
    """An impossible number of partitions."""

    kafka_code = 37


class InvalidReplicationFactorError(InvalidRequestError):
    """A replication factor above the number of log roots that are online, or below one."""

    kafka_code = 38


class InvalidReplicaAssignmentError(InvalidRequestError):
    """An assignment of replicas to nodes that are unknown, offline or repeated."""

    kafka_code = 39


class InvalidConfigError(InvalidRequestError):
    """An unknown config key, or a value outside its bounds."""

    kafka_code = 40


class UnsupportedForMessageFormatError(InvalidRequestError):
    """The message format does not support the request."""

    kafka_code = 43


class PolicyViolationError(InvalidRequestError):
    """The topic's `cleanup.policy` forbids the request."""

    kafka_code = 44


class UnsupportedCompressionError(InvalidRequestError):
    """An unknown codec, or one that the message format does not support."""

    kafka_code = 76


class InvalidRecordError(InvalidRequestError):
    """A record or batch that a leader rejects."""

    kafka_code = 87


class UnexpectedAppendOffsetError(InvalidRequestError):
    """A follower append that does not start at or after the log end."""


class InvalidOptionError(InvalidRequestError):
    """An unknown option or an invalid value."""


class UnknownSchemaError(InvalidRequestError):
    """A registry or a directory does not have the schema or the subject."""


# ---- restore or repair ----------------------------------------------------------------------
class CorruptDataError(StreamLogError):
    """The bytes on disk are damaged."""

    kafka_code = 2


class CorruptRecordError(CorruptDataError):
    """A batch or record with a wrong checksum or structure."""


class CorruptIndexError(CorruptDataError):
    """An index that does not match its segment; it can be rebuilt from the log."""


class CorruptSnapshotError(CorruptDataError):
    """An unreadable producer snapshot; an older one or the log replaces it."""


class CorruptCheckpointError(CorruptDataError):
    """An unreadable checkpoint, metadata or decision file."""


class LimitExceededError(CorruptDataError):
    """Data that exceeds a limit, such as a decompression bomb."""


# ---- read the new state ---------------------------------------------------------------------
class FencedError(StreamLogError):
    """The state has changed since it was read; read it again before deciding."""

    kafka_code = 74


class OutOfOrderSequenceError(FencedError):
    """A batch whose sequence does not follow the producer's last batch."""

    kafka_code = 45


class InvalidProducerEpochError(FencedError):
    """A batch or marker of an older producer epoch."""

    kafka_code = 47


class InvalidTxnStateError(FencedError):
    """A batch that does not fit the state of the producer's transaction."""

    kafka_code = 48


class TransactionCoordinatorFencedError(FencedError):
    """A marker of an older transaction coordinator."""

    kafka_code = 52


class NotLeaderError(FencedError):
    """A write through a log root that does not lead the partition."""

    kafka_code = 6


class InvalidUpdateVersionError(FencedError):
    """The state of a partition, or the list of log roots, has another version than expected."""

    kafka_code = 95


class InconsistentTopicIdError(FencedError):
    """The topic was deleted and recreated under the same name."""

    kafka_code = 103


class DataLossError(FencedError):
    """Records that a reader needs are gone: expired, truncated, or of a deleted topic."""

    kafka_code = 1


class CommitMismatchError(FencedError):
    """A commit whose identity exists with another fingerprint, or that is out of order."""


# ---- retry later ----------------------------------------------------------------------------
class UnavailableError(StreamLogError):
    """The request cannot be served now; it may be valid."""

    kafka_code = 5


class NotEnoughReplicasError(UnavailableError):
    """Fewer in-sync replicas than `min.insync.replicas`."""

    kafka_code = 19


class NoReplicaOnlineError(UnavailableError):
    """No replica that holds every committed record is reachable, so the partition has no leader."""


class NoQuorumError(UnavailableError):
    """Less than a majority of the log roots can be reached; the message names the missing ones."""


class RegistryError(UnavailableError):
    """A schema registry cannot be reached, or failed to answer."""


class LockTimeoutError(UnavailableError):
    """Another process holds the lock; the message names the holder and its age."""

    kafka_code = 7


class StorageError(UnavailableError):
    """The file system failed an operation; see `errno` and `operation`."""

    kafka_code = 56

    def __init__(self, what: str, *, errno: int = 0, operation: str = "", **context: Any) -> None:
        super().__init__(what, **context)
        self.errno = errno
        self.operation = operation


class FileMissingError(StorageError):
    """A file or directory does not exist (ENOENT)."""


class FileExistsAlreadyError(StorageError):
    """A file or directory already exists (EEXIST)."""


class DiskFullError(StorageError):
    """No space or quota left, or a file size limit (ENOSPC, EDQUOT, EFBIG)."""


class PoisonedError(StorageError):
    """A handle whose fsync failed and whose state is unreliable; close and reopen it."""


class UnknownOutcomeError(UnavailableError):
    """The append may or may not have happened, in full or up to some complete batch."""

    kafka_code = 56


class NotEnoughReplicasAfterAppendError(UnknownOutcomeError):
    """The records are in the leader's log, but too few replicas in sync hold them."""

    kafka_code = 20
