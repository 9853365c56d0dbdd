"""`write_table`: Arrow data into a topic as one commit, without Spark.

Accepts tables and record batches of pyarrow and everything that exports an Arrow stream (pandas,
Polars, DuckDB). The rows are encoded, staged and committed like those of a batch `write` of Spark.
"""

import random as random_module
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from streamlog.arrow.bucket_topics import plan_topics
from streamlog.arrow.schema import SinkSchema
from streamlog.arrow.sink_topics import SinkTopics
from streamlog.arrow.stage import StagePlan, stage_rows
from streamlog.bucket.places import is_bucket, root_paths, shared_store
from streamlog.bucket.planned_topics import PlannedTopics
from streamlog.bucket.root import BucketRoot
from streamlog.clock import Clock, SystemClock
from streamlog.commits.commit_log import CommitOutcome
from streamlog.commits.identity import CommitIdentity, check_identity
from streamlog.commits.replay import ReplayRule
from streamlog.commits.staging import StagedFile
from streamlog.errors import InvalidOptionError, InvalidRequestError, StreamLogError
from streamlog.fs.api import FileSystem
from streamlog.fs.local import LocalFileSystem
from streamlog.fs.log_root import LogRoot
from streamlog.records.acks import Acks
from streamlog.records.record import CompressionType
from streamlog.root.manager import LogManager
from streamlog.root.read_roots import RootPaths
from streamlog.root.set_commits import staging_roots
from streamlog.topic import check_topic_name

__all__ = ["write_table"]

_PIECE_BYTES: Final = 16 << 20  # encoded at a time
_HEADERS: Final = pa.list_(
    pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]))
)
_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_READ_ONLY: Final = frozenset({"offset", "timestampType"})  # of `read_table`; ignored


def write_table(
    data: Any,
    root: RootPaths,
    topic: str | None = None,
    *,
    compression_type: str | CompressionType = CompressionType.NONE,
    txn_app_id: str | None = None,
    txn_version: int | None = None,
    on_replay_mismatch: str = "fail",
    acks: str | int | Acks = Acks.ALL,
    fs: FileSystem | None = None,
    clock: Clock | None = None,
) -> CommitOutcome:
    """Append all rows to a topic as one commit: atomically, and durable on return.

    The columns are those of the Spark sink: `value` (text or bytes; required), `key` (text or
    bytes), `headers`, `partition`, `timestamp` (with a time zone; null or absent: the time of
    this call), and `topic` unless the argument is given. `offset` and `timestampType` of
    `read_table` are ignored; any other column is an error. The partition of a row is that of the
    column, else murmur2 of its key as in Kafka's Java client, else the same for about a batch of
    rows.

    Args:
        data: A pyarrow Table, RecordBatch or RecordBatchReader, an iterable of record batches, or
            any object with `__arrow_c_stream__`. It may be larger than memory.
        root: The log root, also in an object store (`s3://BUCKET/PATH` …); or roots of a replica
            set, as a list or separated by commas.
        topic: The topic of all rows; None: the column `topic`.
        compression_type: `none`, `gzip`, `snappy`, `lz4` or `zstd`, if the topic's
            `compression.type` is `producer`.
        txn_app_id: Name of the writer. With `txn_version` the write is idempotent: repeating it
            with the same app, version and topic has no effect.
        txn_version: Number of the write, higher than that of the writer's last one.
        on_replay_mismatch: Handling of a known version with different rows: `fail`, `skip` or
            `append`.
        acks: Whether to wait until all replicas in sync hold the rows (`all`) or not (0, 1). The
            commit is durable on the roots in sync in either case.
        fs: The file system; the machine's own by default.
        clock: Gives the timestamp; the machine's own by default.

    Returns:
        The offsets of the rows by partition (`parts`), and whether an earlier call had written
        them (`is_replay`).

    Raises:
        InvalidRequestError: A column or a row that the sink or the topic does not accept; nothing
            was written.
        UnknownTopicError: There is no such root, topic or partition; nothing was written.
        CommitMismatchError: The version is known with different rows, or not above the last one.
        UnknownOutcomeError: The commit may have succeeded; with `txn_app_id`, repeat the call.
        UnavailableError: A lock or the disk is not available.

    Source: `KafkaWriter` of Spark for the columns; the protocol is COMMITS.md.
    """
    fs, clock, level = fs or LocalFileSystem(), clock or SystemClock(), Acks.of(acks)
    if topic is not None:
        check_topic_name(topic)
    place = _place(root_paths(root, fs), topic, fs, clock)  # fails before the first row is read
    identity = _identity(txn_app_id, txn_version, topic)
    batches, schema = _stream(data)
    columns = _schema_of(schema, topic)
    plan = StagePlan(
        roots=place.roots,
        schema=columns,
        topic=topic,
        compression=CompressionType.of(compression_type),
        has_checksum=not identity.is_anonymous,
        topics=place.topics,
    )
    pieces = (piece for batch in batches for piece in _pieces(_as_sink_takes(batch)))
    staged = stage_rows(fs, clock, plan, pieces, app=identity.app, version=identity.version, task=0)
    return place.commit(identity, staged, on_replay_mismatch, level)


class _Place(Protocol):
    """Where rows are written to; `topics` are those of a root in an object store."""

    roots: tuple[str, ...]
    topics: PlannedTopics | None

    def commit(
        self, identity: CommitIdentity, staged: StagedFile, on_mismatch: str, acks: Acks
    ) -> CommitOutcome:
        """Commit a staged file."""
        ...


def _place(paths: tuple[str, ...], topic: str | None, fs: FileSystem, clock: Clock) -> _Place:
    """Return the place of rows, after checking that the topic exists."""
    if is_bucket(paths[0]):
        return _Bucket(paths[0], topic, clock)
    return _Directories(paths, topic, fs, clock)


class _Directories:
    """A root in a directory, or a replica set."""

    def __init__(
        self, paths: tuple[str, ...], topic: str | None, fs: FileSystem, clock: Clock
    ) -> None:
        self.roots = staging_roots(paths, topic=topic, fs=fs, clock=clock)
        self.topics: PlannedTopics | None = None
        self._fs, self._clock = fs, clock
        if topic is not None:
            SinkTopics(*(LogRoot.at(path, fs=fs, clock=clock) for path in self.roots)).find(topic)

    def commit(
        self, identity: CommitIdentity, staged: StagedFile, on_mismatch: str, acks: Acks
    ) -> CommitOutcome:
        """Commit a staged file."""
        with LogManager.open(self.roots, fs=self._fs, clock=self._clock) as manager:
            try:
                return manager.commits.commit(
                    identity,
                    [staged],
                    replay_rule=ReplayRule.GREATER,
                    on_mismatch=on_mismatch,
                    acks=acks,
                )
            except StreamLogError:
                _discard(manager, identity, staged)
                raise


class _Bucket:
    """A root in an object store, where every commit is durable with any `acks`."""

    def __init__(self, url: str, topic: str | None, clock: Clock) -> None:
        self.roots: tuple[str, ...] = (url,)
        self._root = BucketRoot(shared_store(url), clock=clock)
        self._root.refresh()
        self.topics: PlannedTopics | None = plan_topics(self._root, topic)

    def commit(
        self, identity: CommitIdentity, staged: StagedFile, on_mismatch: str, acks: Acks
    ) -> CommitOutcome:
        """Commit a staged object; without a commit it is collected later."""
        del acks
        return self._root.commits.commit(
            identity,
            [staged],
            planned=PlannedTopics.configs([self.topics] if self.topics else []),
            replay_rule=ReplayRule.GREATER,
            on_mismatch=on_mismatch,
        )


def _identity(app: str | None, version: int | None, topic: str | None) -> CommitIdentity:
    if (app is None) != (version is None):
        raise InvalidOptionError(
            "txn_app_id and txn_version belong together",
            got=f"txn_app_id={app!r}, txn_version={version!r}",
            expected="both or neither",
        )
    if app is None or version is None:
        return CommitIdentity.anonymous(random_module.SystemRandom())
    identity = CommitIdentity.of(txn_app_id=app, query_id=None, topic=topic, version=version)
    check_identity(identity)
    return identity


def _schema_of(schema: pa.Schema, topic: str | None) -> SinkSchema:
    """Find the sink's columns; refuse unknown columns and unsupported types."""
    names = list(schema.names)
    twice = sorted({name for name in names if names.count(name) > 1})
    unknown = sorted(set(names) - _TYPES.keys() - _READ_ONLY)
    if twice or unknown or "value" not in names or (topic is None and "topic" not in names):
        if twice:
            what = f"column {twice[0]!r} appears {names.count(twice[0])} times"
        elif unknown:
            what = f"unknown column {unknown[0]!r}"
        else:
            what = f"column {'topic' if 'value' in names else 'value'!r} is missing"
        raise InvalidRequestError(
            what,
            got=f"columns {', '.join(names) or '(none)'}",
            expected=f"value, and any of {', '.join(name for name in _TYPES if name != 'value')}",
            hint="select columns with data.select([…]), rename them with rename_columns",
        )
    for field in schema:
        is_taken, expected = _TYPES.get(field.name, (_is_anything, ""))
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        if not is_taken(kind):
            raise InvalidRequestError(
                f"column {field.name}: unsupported type",
                got=str(field.type),
                expected=expected,
            )
    places = {name: place for place, name in enumerate(names)}
    return SinkSchema(
        value=places["value"],
        key=places.get("key"),
        headers=places.get("headers"),
        topic=None if topic is not None else places["topic"],
        partition=places.get("partition"),
        timestamp=places.get("timestamp"),
    )


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view()
    )


def _is_text_or_bytes(kind: pa.DataType) -> bool:
    is_bytes = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    return bool(is_bytes or _is_text(kind) or kind == pa.binary_view() or pa.types.is_null(kind))


def _is_instant(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.tz is not None)


def _is_headers(kind: pa.DataType) -> bool:
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return False
    pair = kind.value_type
    names = [field.name for field in pair] if pa.types.is_struct(pair) else []
    return names == ["key", "value"]


def _is_anything(kind: pa.DataType) -> bool:
    return kind is not None


_TYPES: Final[dict[str, tuple[Callable[[pa.DataType], bool], str]]] = {
    "value": (_is_text_or_bytes, "text or bytes"),
    "key": (_is_text_or_bytes, "text or bytes"),
    "headers": (_is_headers, "a list of structs of key (text) and value (bytes)"),
    "topic": (_is_text, "text"),
    "partition": (pa.types.is_integer, "an integer"),
    "timestamp": (_is_instant, "a timestamp with a time zone"),
}


def _discard(manager: LogManager, identity: CommitIdentity, staged: StagedFile) -> None:
    """Remove a staged file unless a decision names it; if that fails, it expires."""
    if staged.name:
        try:
            manager.commits.abort(identity, [staged])
        except StreamLogError:
            return


# ---- Arrow ------------------------------------------------------------------------------------
def _stream(data: Any) -> tuple[Iterable[pa.RecordBatch], pa.Schema]:
    if isinstance(data, pa.RecordBatch):
        return [data], data.schema
    if isinstance(data, pa.Table):
        return data.to_batches(), data.schema
    if hasattr(data, "__arrow_c_stream__"):
        reader = pa.RecordBatchReader.from_stream(data)
        return reader, reader.schema
    if isinstance(data, Iterable) and not isinstance(data, str | bytes | dict):
        batches = iter(data)
        first = next(batches, None)
        if isinstance(first, pa.RecordBatch):
            return _chained(first, batches), first.schema
    raise InvalidRequestError(
        "data has no Arrow columns",
        got=type(data).__name__,
        expected="a pyarrow Table, RecordBatch or RecordBatchReader, an iterable of at least one"
        " record batch, or a DataFrame of pandas or Polars",
        hint="pyarrow.Table.from_pylist([{'key': b'k', 'value': b'v'}])",
    )


def _chained(first: pa.RecordBatch, others: Iterator[Any]) -> Iterator[pa.RecordBatch]:
    yield first
    for number, batch in enumerate(others, 2):
        if not isinstance(batch, pa.RecordBatch) or not batch.schema.equals(first.schema):
            raise InvalidRequestError(
                f"record batch {number} has different columns than the first one",
                got=str(batch.schema) if isinstance(batch, pa.RecordBatch) else repr(batch)[:80],
                expected=str(first.schema),
            )
        yield batch


def _as_sink_takes(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Cast the columns of a batch to the types that Spark sends."""
    arrays = [_cast(name, batch.column(at)) for at, name in enumerate(batch.schema.names)]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _cast(name: str, column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.dictionary_decode()
        kind = column.type
    wanted = {"partition": pa.int32(), "headers": _HEADERS, "timestamp": _TIMESTAMP}.get(name)
    if kind in (pa.string_view(), pa.binary_view()):
        wanted = pa.large_string() if kind == pa.string_view() else pa.large_binary()
    if pa.types.is_null(kind) and name in ("key", "value"):
        wanted = pa.binary()
    if wanted is None or kind == wanted:
        return column
    if name == "timestamp" and pa.types.is_timestamp(kind) and kind.unit == "ns":
        column = pc.floor_temporal(column, unit="microsecond")
    try:
        return column.cast(wanted)
    except pa.ArrowInvalid as error:
        raise InvalidRequestError(
            f"column {name}: value out of range", got=str(error), expected=str(wanted)
        ) from None


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield slices of a batch for encoding; nothing is copied."""
    count = max(1, -(-batch.nbytes // _PIECE_BYTES))
    rows = max(1, -(-batch.num_rows // count))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)
