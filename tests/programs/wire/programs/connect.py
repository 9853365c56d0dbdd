"""Kafka Connect copies a file into a topic and the topic into a file, by way of a gateway."""

import json
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from streamlog import LogManager
from streamlog.gateway import serve
from streamlog.records.record import IsolationLevel
from tests.programs.wire.programs.jars import command
from tests.programs.wire.programs.running import Running, free_port

__all__ = ["PROGRAMS"]

_CLI: Final = "org.apache.kafka.connect.cli"
_FILE: Final = "org.apache.kafka.connect.file"
_TOPIC: Final = "lines"
_LINES: Final = 5000
_INTERNAL: Final = ("config", "offset", "status")


def _worker(bootstrap: str, **settings: str) -> dict[str, str]:
    converter = "org.apache.kafka.connect.storage.StringConverter"
    return {
        "bootstrap.servers": bootstrap,
        "key.converter": converter,
        "value.converter": converter,
        "plugin.discovery": "service_load",
        "offset.flush.interval.ms": "500",
    } | {key.replace("_", "."): value for key, value in settings.items()}


def _source(file: Path) -> dict[str, str]:
    return {
        "connector.class": f"{_FILE}.FileStreamSourceConnector",
        "file": str(file),
        "topic": _TOPIC,
        "batch.size": "100",
        "topic.creation.default.partitions": "1",
        "topic.creation.default.replication.factor": "1",
    }


def _sink(file: Path) -> dict[str, str]:
    return {
        "connector.class": f"{_FILE}.FileStreamSinkConnector",
        "file": str(file),
        "topics": _TOPIC,
        "consumer.override.auto.offset.reset": "earliest",
    }


def _properties(path: Path, settings: Mapping[str, str]) -> str:
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), "utf-8")
    return str(path)


def _append(path: Path, first: int, last: int) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.writelines(f"line {number}\n" for number in range(first, last))


def _numbers(path: Path) -> list[int]:
    text = path.read_text("utf-8") if path.exists() else ""
    return [int(line.split()[1]) for line in text.splitlines()]


def standalone(scratch: Path) -> str:
    """Copy through one worker without internal topics; stop it and go on."""
    source, sink = scratch / "source.txt", scratch / "sink.txt"
    with serve(scratch / "root") as gateway:
        worker = _worker(
            gateway.bootstrap_servers,
            offset_storage_file_filename=str(scratch / "offsets"),
            listeners=f"http://127.0.0.1:{free_port()}",
        )
        arguments = [
            _properties(scratch / "worker.properties", worker),
            _properties(scratch / "source.properties", {"name": "in", **_source(source)}),
            _properties(scratch / "sink.properties", {"name": "out", **_sink(sink)}),
        ]
        for run in range(2):
            _append(source, run * _LINES, (run + 1) * _LINES)
            wanted = (run + 1) * _LINES
            started = [*command("kafka-connect"), f"{_CLI}.ConnectStandalone", *arguments]
            with Running(started, scratch / "log") as process:
                process.wait_until(lambda wanted=wanted: len(_numbers(sink)) >= wanted)
    assert _numbers(sink) == list(range(2 * _LINES))
    return f"{2 * _LINES:,} lines through a topic, in two runs"


def distributed(scratch: Path) -> str:
    """Copy through a worker that keeps its state in topics, exactly once; kill it meanwhile."""
    source, sink, root = scratch / "source.txt", scratch / "sink.txt", scratch / "root"
    with serve(root) as gateway:
        port = free_port()
        stores = {f"{name}_storage_topic": f"connect-{name}" for name in _INTERNAL}
        factors = {f"{name}_storage_replication_factor": "1" for name in _INTERNAL}
        worker = _worker(
            gateway.bootstrap_servers,
            group_id="connect",
            exactly_once_source_support="enabled",
            listeners=f"http://127.0.0.1:{port}",
            **stores,
            **factors,
        )
        # The member that was killed is given up soon.
        worker |= {"session.timeout.ms": "6000", "heartbeat.interval.ms": "1000"}
        arguments = [_properties(scratch / "worker.properties", worker)]
        started = [*command("kafka-connect"), f"{_CLI}.ConnectDistributed", *arguments]
        _append(source, 0, _LINES)
        with Running(started, scratch / "log") as process:
            process.wait_until(lambda: _put(port, "in", _source(source)))
            process.wait_until(lambda: _put(port, "out", _sink(sink)))
            process.wait_until(lambda: len(_numbers(sink)) > _LINES // 4)
            process.kill()
        _append(source, _LINES, 2 * _LINES)
        with Running(started, scratch / "log") as process:
            process.wait_until(lambda: set(_numbers(sink)) >= set(range(2 * _LINES)))
    with LogManager.open(root) as manager:
        rows = manager.reader(_TOPIC, 0).records(isolation=IsolationLevel.READ_COMMITTED)
        assert [int(bytes(row.value or b"").split()[1]) for row in rows] == list(range(2 * _LINES))
        policies = {
            name: manager.topic_config(f"connect-{name}").cleanup_policy for name in _INTERNAL
        }
    assert set(policies.values()) == {frozenset({"compact"})}, policies
    return f"{2 * _LINES:,} lines once each in the topic, killed once; state in three topics"


def _put(port: int, name: str, settings: Mapping[str, str]) -> bool:
    """Create a connector; return whether the worker accepts it."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/connectors/{name}/config",
        json.dumps(dict(settings)).encode(),
        {"Content-Type": "application/json"},
        method="PUT",
    )
    try:
        with urllib.request.urlopen(request, timeout=90) as answer:
            return bool(answer.status in (200, 201))
    except OSError:  # it does not listen yet, or is not ready
        return False


PROGRAMS: Final[dict[str, Callable[[Path], str]]] = {
    "connect-standalone": standalone,
    "connect-distributed": distributed,
}
