"""The options of a sink as parsed values."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from streamlog.bucket.places import is_bucket, root_paths
from streamlog.commits.identity import CommitIdentity
from streamlog.errors import InvalidOptionError, UnsupportedCompressionError
from streamlog.fs.local import LocalFileSystem
from streamlog.query.checkpoint import local_path
from streamlog.records.acks import Acks
from streamlog.records.record import CompressionType
from streamlog.root.set_commits import staging_roots
from streamlog.spark.options import Use, check_options, parse_choice, parse_integer
from streamlog.topic import check_topic_name

__all__ = ["LOCK_TIMEOUT_MS", "SinkOptions"]

LOCK_TIMEOUT_MS: Final = 600_000  # better late than failed; a log line names the holder
_MAX_VERSION: Final = 2**63 - 1
_ACKS: Final = ("0", "1", "all", "-1")
_MISMATCH_RULES: Final = ("fail", "skip", "append")


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """The options of all three sinks.

    Attributes:
        roots: The log root's directory, or those of a replica set in the order to try them.
        topic: The topic of all rows; None: the column `topic`.
        compression: The codec for topics whose `compression.type` is `producer`.
        acks: Whether a commit waits until all replicas in sync hold its rows.
        flush_messages: Overrides the topic's `flush.messages`.
        flush_ms: Overrides the topic's `flush.ms`.
        lock_timeout_ms: Maximum wait for other writers.
        app_id: Name of the writer; None: the query's id.
        version: Number of the write; None: the batch's id.
        on_mismatch: Handling of a replay with another fingerprint: fail, skip or append.
        checkpoint_location: The query's checkpoint location, as the user set it.
        query_name: The query's name, if it has one.
        maintains: Whether to maintain the root in the background after commits.
    """

    roots: tuple[str, ...]
    topic: str | None = None
    compression: CompressionType = CompressionType.NONE
    acks: Acks = Acks.ALL
    flush_messages: int | None = None
    flush_ms: int | None = None
    lock_timeout_ms: int = LOCK_TIMEOUT_MS
    app_id: str | None = None
    version: int | None = None
    on_mismatch: str = "fail"
    checkpoint_location: str | None = None
    query_name: str | None = None
    maintains: bool = False

    @classmethod
    def of(cls, options: Mapping[str, str], use: Use) -> "SinkOptions":
        """Parse and check the options.

        Args:
            options: The options as Spark passes them; names in any case.
            use: `Use.BATCH_WRITE` or `Use.STREAM_WRITE`.

        Raises:
            InvalidOptionError: An option is unknown, does not apply, or is invalid.
            InvalidTopicError: Not a valid topic name.
        """
        checked = check_options(options, use)
        topic = checked.get("topic")
        roots = _roots(checked)
        if is_bucket(roots[0]):
            _check_bucket(checked)
        return cls(
            roots=roots,
            topic=None if topic is None else check_topic_name(topic),
            compression=_compression(checked),
            acks=Acks.of(parse_choice(checked, "kafka.acks", _ACKS, default="all")),
            flush_messages=parse_integer(checked, "flush.messages"),
            flush_ms=parse_integer(checked, "flush.ms", minimum=0),
            lock_timeout_ms=_lock_timeout_ms(checked),
            app_id=_app_id(checked, use),
            version=parse_integer(checked, "txnVersion", minimum=0, maximum=_MAX_VERSION),
            on_mismatch=parse_choice(checked, "onReplayMismatch", _MISMATCH_RULES, default="fail"),
            checkpoint_location=checked.get("checkpointLocation"),
            query_name=checked.get("queryName"),
            maintains=parse_choice(checked, "maintenance", ("off", "auto"), default="off")
            == "auto",
        )

    def placed(self) -> "SinkOptions":
        """Return the options with all roots of the replica set, as it is now.

        Raises:
            InvalidRequestError: One of several roots does not belong to the set of the others.
            UnavailableError: None of several roots can be read.
        """
        if is_bucket(self.roots[0]):
            return self
        return replace(self, roots=staging_roots(self.roots, topic=self.topic))

    def identity(self, query_id: str | None, version: int) -> CommitIdentity:
        """Return the identity of a commit of this sink.

        Args:
            query_id: The id of the streaming query; None outside of one.
            version: The batch's id, or `txnVersion`.

        Raises:
            InvalidRequestError: Neither a query nor a `txnAppId` names the writer.
        """
        return CommitIdentity.of(
            txn_app_id=self.app_id, query_id=query_id, topic=self.topic, version=version
        )


def _roots(options: Mapping[str, str]) -> tuple[str, ...]:
    path = options.get("path")
    if not path:
        raise InvalidOptionError(
            "option path is missing", expected="the log root", hint='.option("path", "/data/log")'
        )
    return root_paths(path, LocalFileSystem(), resolve=_local)


def _check_bucket(options: Mapping[str, str]) -> None:
    """Refuse options that have no meaning in an object store."""
    for name in ("flush.messages", "flush.ms"):
        if name in options:
            raise InvalidOptionError(
                f"option {name} has no meaning in an object store",
                expected="no such option: every commit is durable when it is made",
            )


def _local(path: str) -> str:
    root = local_path(path)
    if root is None:
        raise InvalidOptionError(
            "option path is not a local path",
            got=path,
            expected="a path or a file: URI that driver and all executors can access, or an object "
            "store: s3://, gs://, az://",
        )
    return root


def _lock_timeout_ms(options: Mapping[str, str]) -> int:
    given = parse_integer(options, "lock.timeout.ms", minimum=0)
    return LOCK_TIMEOUT_MS if given is None else given


def _compression(options: Mapping[str, str]) -> CompressionType:
    try:
        return CompressionType.of(options.get("kafka.compression.type"))
    except UnsupportedCompressionError as error:
        raise InvalidOptionError(
            "invalid value for option kafka.compression.type",
            got=error.got,
            expected=error.expected,
        ) from None


def _app_id(options: Mapping[str, str], use: Use) -> str | None:
    app_id = options.get("txnAppId")
    if app_id is not None and not app_id.strip():
        raise InvalidOptionError("option txnAppId is empty", expected="a name for the writer")
    has_version = "txnVersion" in options
    if use is Use.STREAM_WRITE and has_version:
        raise InvalidOptionError(
            "option txnVersion is not valid in streaming writes",
            expected="no version: it is the batch's id",
        )
    if use is Use.BATCH_WRITE and has_version != (app_id is not None):
        present, absent = ("txnVersion", "txnAppId") if has_version else ("txnAppId", "txnVersion")
        raise InvalidOptionError(
            f"option {present} requires {absent}",
            hint='.option("txnAppId", "daily-load").option("txnVersion", 20260101)',
        )
    return app_id
