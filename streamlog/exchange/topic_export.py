"""`export_topic`: `streamlog export` as a function."""

import contextlib
from collections.abc import Collection
from os import PathLike, fspath

from streamlog.arrow.decoding_arguments import DecodingArguments
from streamlog.exchange.exporting import Exporter, ExportReport
from streamlog.exchange.file_target import DEFAULT_FILE_SIZE
from streamlog.exchange.source import ExportSource
from streamlog.exchange.targets import TargetOptions, open_target
from streamlog.records.record import IsolationLevel
from streamlog.root.read_roots import RootPaths

__all__ = ["export_topic"]


def export_topic(
    path: RootPaths,
    topic: str | None,
    target: str | PathLike[str],
    *,
    format: str = "parquet",
    partitions: Collection[int] | None = None,
    columns: Collection[str] | None = None,
    encoding: str = "utf8",
    target_file_size: int = DEFAULT_FILE_SIZE,
    isolation: IsolationLevel | str = IsolationLevel.READ_COMMITTED,
    catalog: str = "default",
    max_decompressed_bytes: int | None = None,
    value_format: str | None = None,
    key_format: str | None = None,
    schema_registry: str | None = None,
    value_schema: str | None = None,
    key_schema: str | None = None,
    value_subject: str | None = None,
    key_subject: str | None = None,
    value_message: str | None = None,
    key_message: str | None = None,
    schema_framing: str = "confluent",
    mode: str = "PERMISSIVE",
) -> ExportReport:
    """Export a topic to files or to a table; the same call again exports what is new.

    How far an export is stands in its target, so no record is written twice, however a call ended.

    Args:
        path: A log root, a broker's log.dir, a partition's directory or a URL of an object store.
        topic: The topic; None: all at the path.
        target: A directory or a URL of an object store; of Iceberg, `NAMESPACE.TABLE`.
        format: `parquet`, `ndjson`, `csv`, `delta` or `iceberg`.
        partitions: Numbers of the topic's partitions; all by default.
        columns: Names of columns; all by default, headers included.
        encoding: Of keys, values and header values in text: `utf8`, `base64` or `hex`.
        target_file_size: Size of files in bytes.
        isolation: `read_committed` or `read_uncommitted`.
        catalog: Name of an Iceberg table's catalog in pyiceberg's configuration.
        max_decompressed_bytes: Limit of one decompressed batch, if that of its topic is too low.
        value_format: `json`, `avro` or `protobuf`: `value` has the type of the schema, and a last
            column `_error` says which records could not be decoded, and why.
        key_format: The same for `key`.
        schema_registry: URL of a schema registry, or a directory of schemas.
        value_schema: The reader's schema: its text or `@FILE`; for JSON a Spark DDL.
        key_schema: The same for `key`.
        value_subject: Instead: the subject in the registry; TOPIC-value by default.
        key_subject: The same for `key`; TOPIC-key by default.
        value_message: Full name of the Protobuf message; by default the first of the schema.
        key_message: The same for `key`.
        schema_framing: `confluent`: values begin with the id of their schema; or `none`.
        mode: `PERMISSIVE`, or `FAILFAST` to raise for the first record that cannot be decoded.

    Returns:
        What was exported of each partition, and how many records could not be decoded.

    Raises:
        UnknownTopicError: No such path, topic or partition.
        InvalidRequestError: An argument is invalid, a library is not installed, or the target was
            begun in another format, with other columns or with types that do not fit.
        InconsistentTopicIdError: The topic was created again since the last call.
        DataLossError: Records were deleted before they were exported.
        UnknownSchemaError: The registry does not know the subject.
        InvalidRecordError: A record cannot be decoded, with `mode="FAILFAST"`. Raised, like the
            next one, after everything else was exported, including the records before it.
        CorruptDataError: A batch is damaged.
        UnavailableError: The target or a registry cannot be reached; the next call goes on.
    """
    decoding = DecodingArguments(
        (key_format, value_format),
        (key_schema, value_schema),
        (key_subject, value_subject),
        (key_message, value_message),
        *(schema_registry, schema_framing, mode),
    )
    names = None if columns is None else ",".join(columns)
    level, limit = IsolationLevel.of(isolation), max_decompressed_bytes
    return _export(
        ExportSource(
            path, topic, partitions=partitions, isolation=level, max_decompressed_bytes=limit
        ),
        fspath(target),
        TargetOptions(format, names, encoding, target_file_size, catalog, decoding),
    )


def _export(source: ExportSource, target: str, options: TargetOptions) -> ExportReport:
    with source:
        there, columns = open_target(target, options, source.partitions)
        with contextlib.closing(there):
            report = Exporter(source, there, columns).run()
    if report.errors:
        raise report.errors[0]
    return report
