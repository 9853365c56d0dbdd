"""Starting, stopping, and who may serve a root."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from streamlog import LogManager, Record
from streamlog.errors import InvalidOptionError, LockTimeoutError, UnknownTopicError
from streamlog.gateway import Address, Gateway, GatewaySettings, serve
from tests.gateway.wire_client import WireClient


def test_a_second_server_of_a_root_is_refused(root: Path, gateway: Gateway) -> None:
    with pytest.raises(LockTimeoutError, match="has a server already"), serve(root):
        pass
    with serve(root, GatewaySettings(is_read_only=True)) as beside:
        assert beside.bootstrap_servers != gateway.bootstrap_servers


def test_a_root_can_be_served_again_after_a_stop(root: Path) -> None:
    for _ in range(2):
        with serve(root) as gateway, WireClient(gateway.bootstrap_servers) as client:
            assert client.call("ApiVersions", 3)["errorCode"] == 0


def test_a_stop_disconnects_idle_clients(root: Path) -> None:
    with contextlib.ExitStack() as stack:
        with serve(root) as gateway:
            client = stack.enter_context(WireClient(gateway.bootstrap_servers))
            client.call("ApiVersions", 3)
        with pytest.raises(ConnectionError):
            client.receive_frame()


def test_the_advertised_address_is_the_one_clients_get(root: Path) -> None:
    settings = GatewaySettings(advertise=Address("kafka.example", 9999))
    with serve(root, settings) as gateway:
        assert gateway.bootstrap_servers == "kafka.example:9999"
        with WireClient(str(gateway.address)) as client:
            (node,) = client.call("Metadata", 12, topics=[])["brokers"]
    assert (node["host"], node["port"]) == ("kafka.example", 9999)


def test_a_taken_address_is_an_error(root: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        settings = GatewaySettings(listen=Address("127.0.0.1", taken.getsockname()[1]))
        with pytest.raises(InvalidOptionError, match="cannot listen"), serve(root, settings):
            pass
    with serve(root):  # the failed start left no lock
        pass


def test_a_directory_served_read_only_is_not_changed(tmp_path: Path) -> None:
    with (
        pytest.raises(UnknownTopicError),
        serve(tmp_path / "none", GatewaySettings(is_read_only=True)),
    ):
        pass
    with LogManager.open(tmp_path / "log", create=True) as manager:
        manager.create_topic("orders")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "log").rglob("*")}
    with (
        serve(tmp_path / "log", GatewaySettings(is_read_only=True)) as gateway,
        WireClient(gateway.bootstrap_servers) as client,
    ):
        (topic,) = client.call("Metadata", 12, topics=None)["topics"]
    assert topic["name"] == "orders"
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "log").rglob("*")} == before


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9092", ("127.0.0.1", 9092)),
        ("[::1]:0", ("::1", 0)),
        (":9092", ("127.0.0.1", 9092)),
        ("localhost", None),
        ("a:70000", None),
        ("::1:9092", None),
    ],
)
def test_addresses_are_parsed(text: str, address: tuple[str, int] | None) -> None:
    if address is None:
        with pytest.raises(InvalidOptionError, match="invalid address"):
            Address.parse(text)
    else:
        assert Address.parse(text) == address
        assert Address.parse(str(Address.parse(text))) == address


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_serves_until_a_signal(root: Path, number: int) -> None:
    command = [sys.executable, "-m", "streamlog", "--path", str(root), "serve"]
    with LogManager.open(root, create=True):
        pass
    running = subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0"], stderr=subprocess.PIPE, text=True
    )
    assert running.stderr is not None
    line = running.stderr.readline()
    assert line.startswith("listening on 127.0.0.1:")
    with WireClient(line.split()[-1]) as client:
        assert client.call("Metadata", 12, topics=None)["topics"] == []
        os.kill(running.pid, number)
        assert "durable" in running.stderr.read()
    assert running.wait() == 0


def test_the_command_warns_of_an_open_address(root: Path) -> None:
    command = [sys.executable, "-m", "streamlog", "--path", str(root), "serve"]
    running = subprocess.Popen(
        [*command, "--listen", "0.0.0.0:0"], stderr=subprocess.PIPE, text=True
    )
    assert running.stderr is not None
    warning = running.stderr.readline()
    running.terminate()
    running.wait()
    assert "warning: 0.0.0.0:0 can be reached from other hosts" in warning


@pytest.mark.parametrize("delay_ms", [0, 30_000])
def test_maintenance_runs_in_the_server_after_a_delay(root: Path, delay_ms: int) -> None:
    with LogManager.open(root, create=True) as manager:
        settings = Path(manager.log_root.server_properties)
        settings.write_text(f"log.initial.task.delay.ms={delay_ms}\n")
        manager.create_topic("old", 1, {"retention.ms": 1, "file.delete.delay.ms": 0})
        log = manager.log("old", 0)
        log.append([Record(value=b"x", timestamp=0)])
        log.roll()
    segments = root / "old-0"
    assert len(list(segments.glob("*.log"))) == 2
    with serve(root):
        deadline = time.monotonic() + (3 if delay_ms else 30)
        while len(list(segments.glob("*.log"))) > 1 and time.monotonic() < deadline:
            time.sleep(0.1)
    assert len(list(segments.glob("*.log"))) == (2 if delay_ms else 1)
