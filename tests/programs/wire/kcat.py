"""Use kcat on a log root: list, produce, read by offset and by time, query, groups.

    python -m tests.programs.wire.kcat [--run NAMES]

Each check gets a gateway on a fresh root. What kcat writes is read from the files, and what it
reads was written to the files: neither direction is judged by itself. kcat is Debian's package
`kcat`. The exit code is 0 if all checks passed.
"""

import argparse
import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from streamlog import Header, LogManager, Record
from streamlog.gateway import GatewaySettings, serve
from tests.gateway.fetching import append_transaction, end_transaction
from tests.programs.wire.suites import FAILED, PASSED, Outcome, run_suite

TIMEOUT_S: Final = 60
HOUR_MS: Final = 3_600_000
COMMITTED: Final = "isolation.level=read_committed"
CODECS: Final = ("none", "gzip", "snappy", "lz4")


class Served(NamedTuple):
    """A served root and the kcat that talks to it."""

    root: Path
    address: str
    options: tuple[str, ...] = ()

    def start(self, *arguments: str) -> "subprocess.Popen[bytes]":
        """Start kcat."""
        command = [kcat(), "-b", self.address, *self.options, *arguments]
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def run(self, *arguments: str, data: bytes = b"") -> str:
        """Return what kcat prints; fails if it fails."""
        with self.start("-q", *arguments) as running:
            try:
                printed, errors = running.communicate(data, TIMEOUT_S)
            finally:
                running.kill()
        assert running.returncode == 0, errors.decode()
        return printed.decode()

    def create(self, topic: str, partitions: int = 1) -> None:
        """Create a topic."""
        with LogManager.open(self.root) as manager:
            manager.create_topic(topic, partitions)

    def append(self, topic: str, *records: Record, partition: int = 0) -> None:
        """Write to the files, one batch for each record."""
        with LogManager.open(self.root) as manager:
            for record in records:
                manager.log(topic, partition).append([record])

    def records(self, topic: str, partition: int = 0) -> list[Record]:
        """Read from the files."""
        with LogManager.open(self.root) as manager:
            log = manager.log(topic, partition)
            return list(log.records(0, isolation="read_uncommitted"))


def kcat() -> str:
    """Return the path of kcat.

    Raises:
        FileNotFoundError: It is not installed.
    """
    found = shutil.which("kcat")
    if found is None:
        raise FileNotFoundError("kcat is not in PATH (Debian: apt-get install kcat)")
    return found


@contextlib.contextmanager
def served(properties: str = "", users: str = "") -> Iterator[Served]:
    """Serve a fresh root; with users, kcat authenticates as alice."""
    with tempfile.TemporaryDirectory(prefix="streamlog-wire-") as folder:
        root, passwords = Path(folder, "root"), Path(folder, "users")
        with LogManager.open(root, create=True) as manager:
            settings = Path(manager.log_root.server_properties)
        with settings.open("a", encoding="utf-8") as file:
            file.write(f"\n{properties}\n")
        options = []
        if users:
            passwords.touch(mode=0o600)
            passwords.write_text(users, "utf-8")
            name, _, password = users.strip().partition(":")
            for each in (
                "security.protocol=SASL_PLAINTEXT",
                "sasl.mechanism=PLAIN",  # SCRAM of librdkafka before 2.6.1 fails with Kafka 4, too
                f"sasl.username={name}",
                f"sasl.password={password}",
            ):
                options += ["-X", each]
        given = GatewaySettings(sasl_users=str(passwords) if users else None)
        with serve(root, given) as gateway:
            yield Served(root, gateway.bootstrap_servers, tuple(options))


# ---- the checks ---------------------------------------------------------------------------------
def check_list(on: Served) -> None:
    """-L shows brokers, topics and partitions."""
    on.create("orders", 3)
    shown = json.loads(on.run("-L", "-J"))
    (broker,) = shown["brokers"]
    assert broker["name"] == on.address
    (topic,) = [each for each in shown["topics"] if each["topic"] == "orders"]
    assert [each["partition"] for each in topic["partitions"]] == [0, 1, 2]
    for partition in topic["partitions"]:
        assert partition["leader"] == broker["id"] == shown["originating_broker"]["id"]
        assert partition["replicas"] == partition["isrs"] == [{"id": broker["id"]}]
    assert "orders" in on.run("-L", "-t", "orders")


def check_produce(on: Served) -> None:
    """-P writes keys, values and headers in every codec; -p chooses the partition."""
    on.create("orders", len(CODECS))
    lines = b"".join(b"k%d:%s\n" % (n, b"v" * n) for n in range(500))
    for partition, codec in enumerate(CODECS):
        options = ["-K", ":", "-p", str(partition), "-z", codec, "-H", "a=1", "-H", "b=two"]
        on.run("-P", "-t", "orders", *options, data=lines)
        found = on.records("orders", partition)
        assert [(each.key, each.value) for each in found] == [
            (b"k%d" % n, b"v" * n) for n in range(500)
        ]
        assert {tuple(map(tuple, each.headers)) for each in found} == {
            (("a", b"1"), ("b", b"two")),
        }


def check_produce_creates_topic(on: Served) -> None:
    """-P to an unknown topic creates it."""
    on.run("-P", "-t", "fresh", data=b"one\ntwo\n")
    with LogManager.open(on.root) as manager:
        assert "fresh" in manager.topics()
    assert sorted(each.value or b"" for each in on.records("fresh")) == [b"one", b"two"]


def check_produce_nulls(on: Served) -> None:
    """-Z writes and shows empty messages as nulls."""
    on.create("orders")
    on.run("-P", "-Z", "-K", ":", "-t", "orders", data=b"gone:\nkept:x\n")
    assert [(each.key, each.value) for each in on.records("orders")] == [
        (b"gone", None), (b"kept", b"x"),
    ]  # fmt: skip
    assert on.run("-C", "-Z", "-t", "orders", "-e", "-f", "%k=%s;") == "gone=NULL;kept=x;"


def check_produce_file(on: Served) -> None:
    """A whole file is one message."""
    on.create("orders")
    content = bytes(range(256)) * 3500
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        on.run("-P", "-t", "orders", file.name)
    assert [each.value for each in on.records("orders")] == [content]


def check_produce_idempotent(on: Served) -> None:
    """Idempotence, and every acks."""
    on.create("orders")
    for option in ("enable.idempotence=true", "acks=0", "acks=1", "acks=all"):
        on.run("-P", "-t", "orders", "-X", option, data=option.encode() + b"\n")
    expected = [b"enable.idempotence=true", b"acks=0", b"acks=1", b"acks=all"]
    assert _eventually(lambda: [each.value for each in on.records("orders")] == expected)


def check_produce_transaction(on: Served) -> None:
    """A transaction is committed at the end of the input."""
    on.create("orders")
    on.run("-P", "-t", "orders", "-X", "transactional.id=billing", data=b"a\nb\n")
    shown = on.run("-C", "-t", "orders", "-e", "-X", COMMITTED, "-f", "%s;")
    assert shown == "a;b;"
    with LogManager.open(on.root) as manager:
        assert manager.log("orders", 0).high_watermark == 3  # with the marker


def check_consume(on: Served) -> None:
    """-C shows what the files have, with -f and as JSON."""
    on.create("orders", 2)
    for n in range(6):
        record = Record(b"k%d" % n, b"v%d" % n, (Header("h", b"%d" % n),), HOUR_MS + n)
        on.append("orders", record, partition=n % 2)
    shown = on.run("-C", "-t", "orders", "-e", "-f", "%t %p %o %k %s %T %h\n").splitlines()
    assert sorted(shown) == sorted(
        f"orders {n % 2} {n // 2} k{n} v{n} {HOUR_MS + n} h={n}" for n in range(6)
    )
    found = [json.loads(line) for line in on.run("-C", "-t", "orders", "-e", "-J").splitlines()]
    assert len(found) == 6
    assert [each for each in found if each["key"] == "k3"] == [
        {
            "topic": "orders",
            "partition": 1,
            "offset": 1,
            "tstype": "create",
            "ts": HOUR_MS + 3,
            "broker": found[0]["broker"],
            "headers": ["h", "3"],
            "key": "k3",
            "payload": "v3",
        }
    ]


def check_consume_by_offset(on: Served) -> None:
    """-o takes an offset, or a distance from the end; -c a count."""
    on.create("orders")
    on.append("orders", *(Record(value=b"%d" % n) for n in range(10)))
    read = ("-C", "-t", "orders", "-p", "0", "-e", "-f", "%s,")
    assert on.run(*read, "-o", "beginning") == "0,1,2,3,4,5,6,7,8,9,"
    assert on.run(*read, "-o", "7") == "7,8,9,"
    assert on.run(*read, "-o", "-2") == "8,9,"
    assert on.run(*read, "-o", "3", "-c", "2") == "3,4,"
    assert on.run(*read, "-o", "end") == ""


def check_consume_by_time(on: Served) -> None:
    """-o s@T begins at a time, e@T ends before one; -Q answers the offset of a time."""
    on.create("orders")
    on.append("orders", *(Record(value=b"%d" % n, timestamp=(n + 1) * HOUR_MS) for n in range(10)))
    read = ("-C", "-t", "orders", "-e", "-f", "%s,")
    assert on.run(*read, "-o", f"s@{8 * HOUR_MS}") == "7,8,9,"
    assert on.run(*read, "-o", f"s@{8 * HOUR_MS - 1}") == "7,8,9,"
    shown = on.run(*read, "-o", f"s@{3 * HOUR_MS}", "-o", f"e@{5 * HOUR_MS}")
    assert shown == "2,3,", shown
    for time_ms, offset in ((0, 0), (HOUR_MS + 1, 1), (10 * HOUR_MS, 9), (11 * HOUR_MS, -1)):
        answer = on.run("-Q", "-t", f"orders:0:{time_ms}")
        assert answer.split() == ["orders", "[0]", "offset", str(offset)], answer


def check_consume_follows(on: Served) -> None:
    """A consumer at the end gets what another process appends to the files."""
    on.create("orders")
    with on.start("-C", "-u", "-q", "-t", "orders", "-o", "beginning", "-c", "3") as waiting:
        for value in (b"a", b"b", b"c"):
            time.sleep(0.3)
            on.append("orders", Record(value=value))
        shown, _ = waiting.communicate(timeout=TIMEOUT_S)
    assert shown == b"a\nb\nc\n"


def check_consume_committed(on: Served) -> None:
    """Records of an open transaction wait, those of an aborted one are skipped."""
    on.create("orders")
    read = ("-C", "-t", "orders", "-e", "-f", "%s;")
    with LogManager.open(on.root) as manager:
        log = manager.log("orders", 0)
        append_transaction(log, 7, 0, b"aborted")
        end_transaction(log, 7, commits=False)
        append_transaction(log, 8, 0, b"open")
        assert on.run(*read, "-X", "isolation.level=read_uncommitted") == "aborted;open;"
        assert on.run(*read, "-X", COMMITTED) == ""
        end_transaction(log, 8, commits=True)
    assert on.run(*read, "-X", COMMITTED) == "open;"


def check_group(on: Served) -> None:
    """-G: two members share the partitions; the group goes on where it stopped."""
    on.create("orders", 2)
    group = ("-G", "billing", "-q", "-u", "-f", "%p:%s\\n", "-X", "auto.offset.reset=earliest")
    with on.start(*group, "orders") as first, on.start(*group, "orders") as second:
        time.sleep(6)  # both have joined
        for n in range(20):
            on.append("orders", Record(value=b"%d" % n), partition=n % 2)
        time.sleep(3)
        shown = []
        for member in (first, second):
            member.terminate()
            shown.append(member.communicate(timeout=TIMEOUT_S)[0].decode().split())
    assert sorted(shown[0] + shown[1]) == sorted(f"{n % 2}:{n}" for n in range(20))
    assert [len({line[0] for line in each}) for each in shown] == [1, 1], shown
    on.append("orders", Record(value=b"new"))
    with on.start(*group, "-e", "orders") as third:
        again, errors = third.communicate(timeout=TIMEOUT_S)
    assert again == b"0:new\n", (again, errors)


def check_authentication(on: Served) -> None:
    """PLAIN; a wrong password is refused."""
    on.create("orders")
    on.run("-P", "-t", "orders", data=b"secret\n")
    assert on.run("-C", "-t", "orders", "-e") == "secret\n"
    with on.start("-L", "-m", "3", "-X", "sasl.password=wrong") as refused:
        _, errors = refused.communicate(timeout=TIMEOUT_S)
    assert refused.returncode != 0
    assert b"uthentication" in errors, errors


CHECKS: Final[dict[str, Callable[[Served], None]]] = {
    name.removeprefix("check_"): check
    for name, check in list(globals().items())
    if name.startswith("check_")
}
SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "authentication": {"users": "alice:a secret\n"},
    "produce_creates_topic": {"properties": "auto.create.topics.enable=true"},
}


def _eventually(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + TIMEOUT_S
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def run(names: list[str]) -> tuple[int, list[Outcome]]:
    """Run checks; return an exit code, and the outcomes."""
    found = []
    for name in names:
        try:
            with served(**SETTINGS.get(name, {})) as on:
                CHECKS[name](on)
            found.append(Outcome(name, PASSED))
        except (AssertionError, OSError, subprocess.SubprocessError) as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            note = f"line {place.lineno}, {place.line}: {error}"
            found.append(Outcome(name, FAILED, note[:300]))
    return int(any(each.result == FAILED for each in found)), found


def main() -> int:
    """Run the checks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", default="", help="only these checks, as in list,group")
    given = parser.parse_args()
    names = [each for each in given.run.split(",") if each] or list(CHECKS)
    version = subprocess.run([kcat(), "-V"], capture_output=True, text=True, check=True).stdout
    number = version.partition("Version ")[2].split()[0]
    module = "tests.programs.wire.kcat"
    return run_suite(f"kcat {number}", module, lambda: run(names), is_whole=not given.run)


if __name__ == "__main__":
    sys.exit(main())
