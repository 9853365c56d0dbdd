"""Delta tables through delta-rs, without Spark and without Java.

Positions are application transactions (the action `txn`) in the commit that holds the rows:

    streamlog/orders/0/offset    where partition 0 goes on
    streamlog/orders/0/epoch     the leader epoch before that offset, if it is known
    streamlog/orders/topicId     63 bits of a hash of the topic's id

Delta keeps the last version of each application in its checkpoints, so no retention of the table's
log loses them, and it refuses a commit if another one has set the same application meanwhile. So
two exports at once cannot write a record twice.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from streamlog.errors import FencedError, StorageError, StreamLogError, UnknownOutcomeError
from streamlog.exchange.libraries import hint_for, library_detail, load_library
from streamlog.exchange.positions import ExportPosition
from streamlog.exchange.table_target import TableTarget
from streamlog.exchange.target import Exported
from streamlog.topic import TopicPartition

__all__ = ["DeltaTarget", "delta_failure"]

_PURPOSE: Final = "Delta tables"
_METADATA: Final = "streamlog"


class DeltaTarget(TableTarget):
    """Appends to a Delta table, which is created if there is none.

    Args:
        path: Its directory or URL.
        schema: Its columns.
        file_size: Target size of its files in bytes.
        partitions: The partitions whose positions `look` asks for: a table cannot list them.
        storage_options: Settings of the object store for delta-rs; the environment by default.
    """

    def __init__(
        self,
        path: str,
        schema: pa.Schema,
        file_size: int,
        *,
        partitions: list[TopicPartition],
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(path, schema, file_size)
        self._deltalake = load_library("deltalake", _PURPOSE)
        self._partitions = partitions
        self._options = dict(storage_options or {})
        self._table: Any = None
        self._has_new_fields = False

    def _load(self, topic_ids: Mapping[str, str] | None) -> Exported | None:
        self._table = self._open()
        if self._table is None:
            return None
        self._has_new_fields = bool(self._added_fields(pa.schema(self._table.schema().to_arrow())))
        for topic, topic_id in (topic_ids or {}).items():
            known = self._table.transaction_version(_topic_app(topic))
            if known is not None and topic_id and known != _hash(topic_id):
                self._check_topic(topic, topic_id, "another one")
        positions = {}
        for partition in self._partitions:
            offset = self._table.transaction_version(_app(partition, "offset"))
            epoch = self._table.transaction_version(_app(partition, "epoch"))
            if offset is not None:
                positions[partition] = ExportPosition(offset, -1 if epoch is None else epoch)
        return Exported(dict(topic_ids or {}), positions)

    def _open(self) -> Any:
        table = self._deltalake.DeltaTable
        try:
            if not table.is_deltatable(self._name, self._options):
                return None
            return table(self._name, storage_options=self._options or None)
        except Exception as error:
            raise delta_failure(error, "open", self._name) from error

    def _commit(
        self,
        rows: pa.Table,
        positions: Mapping[TopicPartition, ExportPosition],
        topic_ids: Mapping[str, str],
    ) -> None:
        delta = self._deltalake
        versions = {_topic_app(topic): _hash(each) for topic, each in topic_ids.items() if each}
        for partition, (offset, epoch) in positions.items():
            versions[_app(partition, "offset")] = offset
            if epoch >= 0:
                versions[_app(partition, "epoch")] = epoch
        shown = {str(partition): offset for partition, (offset, _) in sorted(positions.items())}
        properties = delta.CommitProperties(
            custom_metadata={_METADATA: json.dumps({"offsets": shown, "topicIds": topic_ids})},
            app_transactions=[delta.Transaction(*each) for each in sorted(versions.items())],
        )
        try:
            delta.write_deltalake(
                self._name if self._table is None else self._table,
                rows,
                mode="append" if self._table is not None else "error",
                schema_mode="merge" if self._has_new_fields else None,
                target_file_size=self._file_size,
                storage_options=self._options or None,
                commit_properties=properties,
            )
        except Exception as error:
            raise delta_failure(error, "commit", self._name) from error
        self._table, self._has_new_fields = self._open(), False


def _app(partition: TopicPartition, what: str) -> str:
    return f"streamlog/{partition.topic}/{partition.partition}/{what}"


def _topic_app(topic: str) -> str:
    return f"streamlog/{topic}/topicId"


def _hash(topic_id: str) -> int:
    digest = hashlib.sha256(topic_id.encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def delta_failure(error: BaseException, operation: str, path: str) -> StreamLogError:
    """Return the typed error for one of delta-rs; the caller raises it."""
    if isinstance(error, StreamLogError):
        return error
    exceptions = load_library("deltalake.exceptions", _PURPOSE)
    detail = library_detail(error)
    if isinstance(error, exceptions.CommitFailedError) or "already exists" in detail:
        return FencedError(
            "another program has committed to the table meanwhile",
            path=path,
            got=detail,
            hint="run the command again: it goes on from what the table has",
        )
    kind = UnknownOutcomeError if operation == "commit" else StorageError
    return kind(
        f"delta-rs cannot {operation} the table", path=path, got=detail, hint=hint_for(detail)
    )
