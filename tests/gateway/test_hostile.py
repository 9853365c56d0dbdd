"""Clients that send nonsense, send slowly, or never read: the server goes on for all others."""

import contextlib
import os
import random
import resource
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamlog import LogManager, Record
from streamlog.gateway import Gateway, GatewaySettings, serve
from streamlog.protocol.apis import apis
from tests.gateway.fetching import request
from tests.gateway.wire_client import WireClient, frame


def is_served(address: str) -> bool:
    with WireClient(address, timeout_s=10) as client:
        return client.call("Metadata", 12, topics=None)["errorCode"] == 0


def is_closed(connected: socket.socket) -> bool:
    try:
        return connected.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("seed", range(8))
def test_mutated_requests_never_stop_the_server(root: Path, seed: int) -> None:
    rng = random.Random(seed)
    with LogManager.open(root, create=True) as manager:
        manager.create_topic("orders", 2)
    known = sorted(apis())
    with serve(root, GatewaySettings(receive_timeout_s=0.2)) as gateway:
        for _ in range(60):
            api = apis()[rng.choice(known)]
            version = rng.choice(api.versions)
            data = bytearray(frame(api.name, version, rng.randrange(1 << 31), {}))
            for _ in range(rng.randrange(4)):
                at = rng.randrange(len(data)) if data else 0
                match rng.randrange(4):
                    case 0:
                        data[at : at + 1] = rng.randbytes(1)
                    case 1:
                        del data[at:]
                    case 2:
                        data[at:at] = rng.randbytes(rng.randrange(20))
                    case 3:
                        data[at : at + 4] = b"\x7f\xff\xff\xff"
            with WireClient(gateway.bootstrap_servers, timeout_s=0.5) as client:
                size = len(data) + rng.choice([0, 0, 0, -1, 7])
                client.send_raw(max(size, 0).to_bytes(4, "big") + bytes(data))
                with contextlib.suppress(ConnectionError, TimeoutError):
                    client.receive_frame()
        assert is_served(gateway.bootstrap_servers)
    with LogManager.open(root) as manager:
        assert "orders" in manager.topics()


def test_a_client_that_stops_within_a_request_is_disconnected(root: Path) -> None:
    with serve(root, GatewaySettings(receive_timeout_s=0.3)) as gateway:
        with socket.create_connection(gateway.address, timeout=20) as slow:
            slow.sendall((50 << 20).to_bytes(4, "big") + b"\0\x03")
            assert is_closed(slow)
        assert is_served(gateway.bootstrap_servers)


def test_a_client_that_sends_slowly_is_served(root: Path) -> None:
    data = frame("ApiVersions", 3, 1, {})
    with (
        serve(root, GatewaySettings(receive_timeout_s=0.5)) as gateway,
        WireClient(gateway.bootstrap_servers) as slow,
    ):
        for byte in len(data).to_bytes(4, "big") + data:
            slow.send_raw(bytes([byte]))
            time.sleep(0.06)
        assert slow.receive("ApiVersions", 3, 1)["errorCode"] == 0


def test_a_client_that_resets_while_records_are_sent_is_no_error(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with LogManager.open(root, create=True) as manager:
        manager.create_topic("orders", 1)
        log = manager.log("orders", 0)
        for _ in range(64):
            log.append([Record(value=bytes(1 << 19))])
    data = frame("Fetch", 12, 1, request(12, "orders", {0: 0}, {"partitionMaxBytes": 50 << 20}))
    with serve(root) as gateway:
        with socket.socket() as gone:
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            gone.connect(gateway.address)
            gone.sendall(len(data).to_bytes(4, "big") + data)
            assert gone.recv(1000)
            time.sleep(0.1)  # the server waits for room
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        assert is_served(gateway.bootstrap_servers)
    assert [each.getMessage() for each in caplog.records if each.name == "asyncio"] == []


def test_a_silent_client_is_disconnected(root: Path) -> None:
    with LogManager.open(root, create=True):
        pass
    with (root / ".streamlog" / "server.properties").open("a") as file:
        file.write("connections.max.idle.ms=400\n")
    with serve(root) as gateway, socket.create_connection(gateway.address, timeout=20) as silent:
        assert is_closed(silent)
        assert is_served(gateway.bootstrap_servers)


def test_large_announced_requests_share_the_memory(root: Path) -> None:
    with LogManager.open(root, create=True):
        pass
    with (root / ".streamlog" / "server.properties").open("a") as file:
        file.write("queued.max.request.bytes=1000\n")
    settings = GatewaySettings(receive_timeout_s=0.5)
    with serve(root, settings) as gateway, contextlib.ExitStack() as stack:
        for _ in range(5):
            hog = stack.enter_context(socket.create_connection(gateway.address, timeout=20))
            hog.sendall((100 << 20).to_bytes(4, "big"))
        assert is_served(gateway.bootstrap_servers)  # after the hogs were disconnected


@pytest.fixture
def descriptors() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("descriptors")
def test_a_thousand_clients_are_served(root: Path) -> None:
    with LogManager.open(root, create=True):
        pass
    command = [sys.executable, "-m", "streamlog", "--path", str(root), "serve"]
    running = subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0"], stderr=subprocess.PIPE, text=True
    )
    assert running.stderr is not None
    address = running.stderr.readline().split()[-1]
    try:
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(WireClient(address)) for _ in range(1000)]
            for _ in range(2):
                sent = [client.send("Metadata", 12, topics=None) for client in clients]
                for client, number in zip(clients, sent, strict=True):
                    assert client.receive("Metadata", 12, number)["errorCode"] == 0
            status = Path(f"/proc/{running.pid}/status").read_text()
            (resident,) = [line for line in status.splitlines() if line.startswith("VmRSS")]
            assert int(resident.split()[1]) < 150 << 10  # KiB
            assert len(os.listdir(f"/proc/{running.pid}/fd")) > 1000
    finally:
        running.terminate()
        running.wait()


def test_a_client_that_never_reads_delays_no_other(gateway: Gateway) -> None:
    data = frame("ApiVersions", 3, 1, {})
    framed = len(data).to_bytes(4, "big") + data
    with socket.create_connection(gateway.address) as greedy:
        greedy.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            for _ in range(2000):
                greedy.send(framed * 100)
        assert is_served(gateway.bootstrap_servers)


def test_a_client_that_never_reads_is_disconnected(root: Path) -> None:
    with LogManager.open(root, create=True) as manager:
        manager.create_topic("orders", 1)
        log = manager.log("orders", 0)
        for _ in range(64):
            log.append([Record(value=bytes(1 << 19))])
    with (root / ".streamlog" / "server.properties").open("a") as file:
        file.write("connections.max.idle.ms=500\n")
    data = frame("Fetch", 12, 1, request(12, "orders", {0: 0}, {"partitionMaxBytes": 50 << 20}))
    with serve(root) as gateway, socket.socket() as stuck:
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stuck.connect(gateway.address)
        stuck.sendall(len(data).to_bytes(4, "big") + data)
        lost = select.poll()
        lost.register(stuck, 0)  # errors and hang-ups are reported anyway
        assert lost.poll(30_000)
        assert is_served(gateway.bootstrap_servers)


def _answer(client: WireClient, request: bytes) -> bytes:
    client.send_frame(request)
    return client.receive_frame()


def test_a_client_that_asks_without_end_delays_no_other(gateway: Gateway) -> None:
    request = frame("Metadata", 12, 1, {"topics": []})
    flood = (len(request).to_bytes(4, "big") + request) * 20_000
    answered = 0

    def read(greedy: socket.socket) -> None:
        nonlocal answered
        with contextlib.suppress(ConnectionResetError):  # answers to a connection that was shut
            while data := greedy.recv(1 << 20):
                answered += len(data)

    with WireClient(gateway.bootstrap_servers) as other:
        size = 4 + len(_answer(other, request))
        with socket.create_connection(gateway.address) as greedy:
            reader = threading.Thread(target=read, args=(greedy,))
            reader.start()
            sender = threading.Thread(target=greedy.sendall, args=(flood,))
            sender.start()
            between = []
            while sender.is_alive() or answered < len(flood) // len(request) * size // 2:
                before = answered
                other.call("Metadata", 12, topics=[])
                between.append((answered - before) // size)
            sender.join()
            greedy.shutdown(socket.SHUT_RDWR)
            reader.join()
    assert len(between) > 10
    assert sorted(between)[len(between) // 2] < 2000


@pytest.mark.parametrize(
    ("api", "version", "field", "element"),
    [
        ("JoinGroup", 9, "protocols", {"name": "", "metadata": b""}),
        ("LeaveGroup", 5, "members", {"memberId": ""}),
        ("DescribeGroups", 5, "groups", ""),
        ("ListTransactions", 1, "producerIdFilters", 1),
    ],
)
def test_a_request_of_many_elements_is_not_taken_apart(
    gateway: Gateway, api: str, version: int, field: str, element: object
) -> None:
    most = 1 << 18
    for count in (most, most + 1):
        request = frame(api, version, 1, {field: [element] * count})
        with WireClient(gateway.bootstrap_servers) as client:
            client.send_frame(request)
            if count == most:
                assert client.receive_frame()
            else:
                with pytest.raises(ConnectionError):
                    client.receive_frame()
    assert is_served(gateway.bootstrap_servers)
