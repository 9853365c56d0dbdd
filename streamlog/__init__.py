"""streamlog: Kafka's log without the broker, inside Spark.

The names below are the whole public surface. Each is loaded on first use, so `import streamlog`
costs milliseconds and brings in neither numpy, numba, pyarrow nor pyspark.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamlog.arrow.json_sample import infer_json_schema
    from streamlog.arrow.table_writer import write_table
    from streamlog.arrow.tables import read_arrow, read_table
    from streamlog.cleaner.cleaner import LogCleaner
    from streamlog.commits.commit_log import CommitLog
    from streamlog.config.log_config import LogConfig
    from streamlog.config.server_config import ServerConfig
    from streamlog.errors import (
        CorruptDataError,
        FencedError,
        InvalidRequestError,
        StreamLogError,
        UnavailableError,
    )
    from streamlog.exchange.topic_export import export_topic
    from streamlog.partition.append import AppendInfo
    from streamlog.partition.log_offsets import LogOffsets
    from streamlog.partition.read import FetchInfo, Slice
    from streamlog.partition.reader import LogReader
    from streamlog.partition.segments import OffsetAndTimestamp
    from streamlog.records.batch import RecordBatch, read_batches
    from streamlog.records.builder import BatchBuilder
    from streamlog.records.record import (
        CompressionType,
        Header,
        IsolationLevel,
        Record,
        TimestampType,
    )
    from streamlog.root.consumer import Consumer
    from streamlog.root.manager import LogManager, PartitionDescription, TopicDescription
    from streamlog.root.partition_log import PartitionLog
    from streamlog.root.producer import Producer
    from streamlog.root.replica_set import ReplicaSet
    from streamlog.root.set_commits import SetCommits
    from streamlog.topic import TopicPartition

__version__ = "0.1.0"

_HOME = {
    "PartitionLog": "root.partition_log",
    "LogReader": "partition.reader",
    "LogManager": "root.manager",
    "TopicDescription": "root.manager",
    "PartitionDescription": "root.manager",
    "ReplicaSet": "root.replica_set",
    "CommitLog": "commits.commit_log",
    "SetCommits": "root.set_commits",
    "LogCleaner": "cleaner.cleaner",
    "Producer": "root.producer",
    "Consumer": "root.consumer",
    "LogConfig": "config.log_config",
    "ServerConfig": "config.server_config",
    "TopicPartition": "topic",
    "Record": "records.record",
    "Header": "records.record",
    "RecordBatch": "records.batch",
    "BatchBuilder": "records.builder",
    "read_batches": "records.batch",
    "CompressionType": "records.record",
    "TimestampType": "records.record",
    "IsolationLevel": "records.record",
    "AppendInfo": "partition.append",
    "FetchInfo": "partition.read",
    "Slice": "partition.read",
    "LogOffsets": "partition.log_offsets",
    "OffsetAndTimestamp": "partition.segments",
    "read_table": "arrow.tables",
    "infer_json_schema": "arrow.json_sample",
    "read_arrow": "arrow.tables",
    "write_table": "arrow.table_writer",
    "export_topic": "exchange.topic_export",
    "StreamLogError": "errors",
    "InvalidRequestError": "errors",
    "CorruptDataError": "errors",
    "FencedError": "errors",
    "UnavailableError": "errors",
}

__all__ = [
    "PartitionLog",
    "LogReader",
    "LogManager",
    "TopicDescription",
    "PartitionDescription",
    "ReplicaSet",
    "CommitLog",
    "SetCommits",
    "LogCleaner",
    "Producer",
    "Consumer",
    "LogConfig",
    "ServerConfig",
    "TopicPartition",
    "Record",
    "Header",
    "RecordBatch",
    "BatchBuilder",
    "read_batches",
    "CompressionType",
    "TimestampType",
    "IsolationLevel",
    "AppendInfo",
    "FetchInfo",
    "Slice",
    "LogOffsets",
    "OffsetAndTimestamp",
    "read_table",
    "infer_json_schema",
    "read_arrow",
    "write_table",
    "export_topic",
    "StreamLogError",
    "InvalidRequestError",
    "CorruptDataError",
    "FencedError",
    "UnavailableError",
]

if not TYPE_CHECKING:

    def __getattr__(name):
        if name in _HOME:
            value = getattr(import_module(f"streamlog.{_HOME[name]}"), name)
            globals()[name] = value
            return value
        if name in ("spark", "errors"):
            return import_module(f"streamlog.{name}")
        raise AttributeError(f"module 'streamlog' has no attribute {name!r}")

    def __dir__():
        return sorted([*__all__, "errors", "spark"])
