"""Iceberg tables through pyiceberg, in the catalog that its own configuration names.

Positions are JSON in the summary of the snapshot that holds the rows (`streamlog.exported`), and a
property of the table, set in the same commit, which stays when old snapshots expire:

    {"orders": {"topicId": "…", "partitions": {"0": [5000, 2]}}}

A commit is refused if the table has changed since it was loaded. pyiceberg would then append the
rows again on top of the other commit, which may be that of another export, so its repetitions are
switched off: a commit is repeated here once the positions are found unchanged.
"""

import contextlib
import json
import os
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from streamlog.errors import (
    CorruptCheckpointError,
    FencedError,
    InvalidOptionError,
    StorageError,
    StreamLogError,
    UnknownOutcomeError,
)
from streamlog.exchange.libraries import hint_for, library_detail, load_library
from streamlog.exchange.positions import ExportPosition
from streamlog.exchange.table_target import TableTarget
from streamlog.exchange.target import Exported
from streamlog.topic import TopicPartition

__all__ = ["IcebergTarget", "iceberg_failure", "open_catalog"]

_PURPOSE: Final = "Iceberg tables"
_KEY: Final = "streamlog.exported"
_FILE_SIZE: Final = "write.target-file-size-bytes"
_RETRIES: Final = "commit.retry.num-retries"
_ATTEMPTS: Final = 5
_FROM_ENVIRONMENT: Final = {
    "s3.endpoint": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "s3.region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
}
_PROPERTY_SIZE_MAX: Final = 64 << 20


def open_catalog(name: str) -> Any:
    """Return a catalog by the name that pyiceberg's configuration gives it.

    Raises:
        InvalidRequestError: pyiceberg is not installed.
        InvalidOptionError: There is no such catalog.
    """
    catalogs = load_library("pyiceberg.catalog", _PURPOSE)
    try:
        catalog = catalogs.load_catalog(name)
        _add_store_settings(catalog.properties)
    except Exception as error:
        raise InvalidOptionError(
            f"pyiceberg cannot open the catalog {name}",
            got=f"{type(error).__name__}: {library_detail(error)}",
            hint="configure it in ~/.pyiceberg.yaml or by PYICEBERG_CATALOG__"
            f"{name.upper()}__URI and the like",
        ) from error
    return catalog


def _add_store_settings(properties: dict[str, str]) -> None:
    """Add endpoint and region as the environment has them, if the catalog has no others.

    pyiceberg reads the credentials from the environment, but not where to use them.
    """
    for setting, names in _FROM_ENVIRONMENT.items():
        found = next((os.environ[each] for each in names if os.environ.get(each)), None)
        if found is not None and not {setting, f"client.{setting[3:]}"} & properties.keys():
            properties[setting] = found


class IcebergTarget(TableTarget):
    """Appends to an Iceberg table, which is created if there is none; its namespace, too.

    Args:
        catalog: The open catalog.
        identifier: `NAMESPACE.TABLE`.
        schema: Its columns.
        file_size: Target size of its files in bytes; of a table that this creates.
    """

    def __init__(self, catalog: Any, identifier: str, schema: pa.Schema, file_size: int) -> None:
        super().__init__(identifier, schema, file_size)
        if identifier.count(".") < 1 or not all(identifier.split(".")):
            raise InvalidOptionError(
                "an Iceberg table is named with its namespace",
                got=identifier,
                expected="NAMESPACE.TABLE",
            )
        self._catalog, self._table = catalog, None
        self._state, self._has_new_fields = Exported({}, {}), False

    def _load(self, topic_ids: Mapping[str, str] | None) -> Exported | None:
        exceptions = load_library("pyiceberg.exceptions", _PURPOSE)
        try:
            table = self._catalog.load_table(self._name)
        except (exceptions.NoSuchTableError, exceptions.NoSuchNamespaceError):
            return None
        except Exception as error:
            raise iceberg_failure(error, "open", self._name) from error
        self._table = table
        self._has_new_fields = bool(self._added_fields(table.schema().as_arrow()))
        self._state = _state_of(table, self._name)
        for topic, topic_id in (topic_ids or {}).items():
            self._check_topic(topic, topic_id, self._state.topic_ids.get(topic, ""))
        return self._state

    def _commit(
        self,
        rows: pa.Table,
        positions: Mapping[TopicPartition, ExportPosition],
        topic_ids: Mapping[str, str],
    ) -> None:
        before = self._state
        after = Exported({**before.topic_ids, **topic_ids}, {**before.positions, **positions})
        text = _encode(after)
        exceptions = load_library("pyiceberg.exceptions", _PURPOSE)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                table = self._table or self._create()
                # Of this object only; the table keeps its property.
                table.metadata.properties[_RETRIES] = "0"
                with table.transaction() as transaction:
                    if self._has_new_fields:
                        with transaction.update_schema() as update:
                            update.union_by_name(rows.schema)
                    transaction.append(rows, snapshot_properties={_KEY: text})
                    transaction.set_properties({_KEY: text})
            except exceptions.CommitFailedException as error:
                self._load(None)
                if attempt == _ATTEMPTS or self._state != before:
                    raise FencedError(
                        "another program has committed to the table meanwhile",
                        path=self._name,
                        got=library_detail(error),
                        hint="run the command again: it goes on from what the table has",
                    ) from error
            except Exception as error:
                raise iceberg_failure(error, "commit", self._name) from error
            else:
                self._state, self._has_new_fields = after, False
                self._table = self._catalog.load_table(self._name)
                return

    def _create(self) -> Any:
        exceptions = load_library("pyiceberg.exceptions", _PURPOSE)
        namespace = self._name.rpartition(".")[0]
        with contextlib.suppress(exceptions.NamespaceAlreadyExistsError):
            self._catalog.create_namespace(namespace)
        try:
            self._table = self._catalog.create_table(
                self._name, schema=self._schema, properties={_FILE_SIZE: str(self._file_size)}
            )
        except exceptions.TableAlreadyExistsError:
            self._load(None)
        return self._table


def _state_of(table: Any, name: str) -> Exported:
    """Return the positions in the newest snapshot that has any, else in the table's properties."""
    snapshot, seen = table.current_snapshot(), set()
    while snapshot is not None and snapshot.snapshot_id not in seen:
        seen.add(snapshot.snapshot_id)
        summary = snapshot.summary.additional_properties if snapshot.summary else {}
        if _KEY in summary:
            return _decode(summary[_KEY], name)
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)
    text = table.properties.get(_KEY)
    # A table that was rolled back to before its first export has no snapshot of one.
    is_empty = table.current_snapshot() is None
    return Exported({}, {}) if text is None or is_empty else _decode(text, name)


def _encode(state: Exported) -> str:
    topics: dict[str, Any] = {}
    for partition, position in sorted(state.positions.items()):
        topic = topics.setdefault(
            partition.topic,
            {"topicId": state.topic_ids.get(partition.topic, ""), "partitions": {}},
        )
        topic["partitions"][str(partition.partition)] = list(position)
    return json.dumps(topics, separators=(",", ":"))


def _decode(text: str, name: str) -> Exported:
    """Return positions from JSON.

    Raises:
        CorruptCheckpointError: It is not what `_encode` writes.
    """
    try:
        if len(text) > _PROPERTY_SIZE_MAX:
            raise ValueError(f"{len(text)} characters")
        topic_ids, positions = {}, {}
        for topic, found in json.loads(text).items():
            topic_ids[topic] = str(found["topicId"])
            for number, (offset, epoch) in found["partitions"].items():
                if type(offset) is not int or type(epoch) is not int or offset < 0:
                    raise ValueError(f"offset {offset!r}, epoch {epoch!r}")
                positions[TopicPartition(topic, int(number))] = ExportPosition(offset, epoch)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptCheckpointError(
            "the positions of an export in a table cannot be read",
            path=name,
            got=f"{type(error).__name__}: {error}"[:200],
            expected=f"{_KEY} as an export writes it",
            hint="export to another table",
        ) from error
    return Exported(topic_ids, positions)


def iceberg_failure(error: BaseException, operation: str, name: str) -> StreamLogError:
    """Return the typed error for one of pyiceberg; the caller raises it."""
    if isinstance(error, StreamLogError):
        return error
    kind = UnknownOutcomeError if operation == "commit" else StorageError
    detail = f"{type(error).__name__}: {library_detail(error)}"
    what = f"pyiceberg cannot {operation} the table"
    return kind(what, path=name, got=detail, hint=hint_for(detail))
