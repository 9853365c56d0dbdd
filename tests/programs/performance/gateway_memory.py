"""Resident memory of `streamlog serve` with 100 connections that produce and fetch.

Each connection has asked for metadata, written records, and reads them again and again.
"""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from streamlog.records.builder import BatchBuilder
from streamlog.records.record import Record
from tests.gateway.wire_client import WireClient
from tests.programs.performance.comparison import Comparison
from tests.programs.performance.servers import Server, both, create_topic

CONNECTIONS = 100
TURNS = 20
TOPIC = "memory"
LIMIT_MB = 150.0
RECORDS, SIZE = 100, 1000  # of a batch


def compare() -> Iterator[Comparison]:
    """Yield megabytes."""
    with (
        tempfile.TemporaryDirectory(prefix="streamlog-bench-") as directory,
        both(Path(directory, "servers")) as (ours, theirs),
    ):
        used, peer = resident_mb(ours), resident_mb(theirs)
        for name, other, beside, goal in (
            ("limit", LIMIT_MB, "the limit", 1.0),
            ("broker", peer, "a 4.2 broker with 1 GB of heap", None),
        ):
            bench = f"gateway_memory.{name}"
            yield Comparison(bench, used, other, beside, "MB", higher_is_better=False, goal=goal)


def resident_mb(server: Server) -> float:
    """Return the memory that a server has while 100 clients are connected."""
    create_topic(server.address, TOPIC)
    builder = BatchBuilder()
    for _ in range(RECORDS):
        builder.append(Record(None, b"." * SIZE, timestamp=1_700_000_000_000))
    batch = bytes(builder.build())
    with ExitStack() as stack:
        clients = [stack.enter_context(WireClient(server.address)) for _ in range(CONNECTIONS)]
        for client in clients:
            client.call("ApiVersions", 3)
            client.call("Metadata", 9, topics=None)
        for turn in range(TURNS):
            sent = [client.send("Produce", 9, **produced(batch)) for client in clients]
            for client, number in zip(clients, sent, strict=True):
                answer = client.receive("Produce", 9, number)
                code = answer["responses"][0]["partitionResponses"][0]["errorCode"]
                if code:
                    raise RuntimeError(f"a batch was refused: error {code}")
            offset = turn * CONNECTIONS * RECORDS
            sent = [client.send("Fetch", 11, **fetched(offset)) for client in clients]
            for client, number in zip(clients, sent, strict=True):
                client.receive("Fetch", 11, number)
        return memory_of(server.pid)


def produced(batch: bytes) -> dict[str, Any]:
    """Return the fields of a Produce request."""
    partitions = [{"index": 0, "records": batch}]
    topics = [{"name": TOPIC, "partitionData": partitions}]
    return {"transactionalId": None, "acks": -1, "timeoutMs": 30_000, "topicData": topics}


def fetched(offset: int) -> dict[str, Any]:
    """Return the fields of a Fetch request."""
    partition = {"partition": 0, "fetchOffset": offset, "partitionMaxBytes": 1 << 20}
    topics = [{"topic": TOPIC, "partitions": [partition]}]
    return {"maxWaitMs": 100, "minBytes": 1, "maxBytes": 1 << 20, "topics": topics}


def memory_of(pid: int) -> float:
    """Return the resident memory of a process, in megabytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1000
    raise RuntimeError(f"process {pid} is gone")
