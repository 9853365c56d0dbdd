"""Kafka's command-line tools, each doing on a fresh gateway what it is for."""

import contextlib
import csv
import json
import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from streamlog import LogManager, Record
from streamlog.gateway import Gateway, serve
from tests.programs.wire.programs.jars import command
from tests.programs.wire.programs.tools_jvm import CLASSES, Said, tools

__all__ = ["PROGRAMS"]

_COUNT: Final = 50
_PATIENCE_S: Final = 60
_Check = Callable[["_Place"], str]


class _Place:
    """A gateway with the topic `orders`, and the tools connected to it."""

    def __init__(self, gateway: Gateway, root: Path) -> None:
        self.address, self.root = gateway.bootstrap_servers, root

    def ask(self, script: str, *arguments: str, stdin: str = "") -> Said:
        """Run a tool."""
        return tools().ask(script, "--bootstrap-server", self.address, *arguments, stdin=stdin)

    def out(self, script: str, *arguments: str, stdin: str = "") -> str:
        """Return what a tool printed; it must succeed."""
        said = self.ask(script, *arguments, stdin=stdin)
        assert said.code == 0, said
        return said.out

    def refused(self, script: str, *arguments: str) -> str:
        """Return what a tool printed that must fail."""
        said = self.ask(script, *arguments)
        assert said.code != 0 or "rror" in said.out, said
        return said.out + said.error

    def filled(self, count: int = _COUNT) -> "_Place":
        """Append `count` records, numbered, to partition 0 of `orders`."""
        with LogManager.open(str(self.root)) as manager:
            now = manager.clock.now_ms()
            rows = [Record(b"k%d" % n, b"v%d" % n, timestamp=now + n) for n in range(count)]
            manager.log("orders", 0).append(rows)
        return self


def _acls(place: _Place) -> str:
    said = place.refused("kafka-acls", "--list")
    assert "SecurityDisabledException" in said
    return "refused: SecurityDisabledException"


def _broker_api_versions(place: _Place) -> str:
    out = place.out("kafka-broker-api-versions")
    usable = re.findall(r"^\t(\w+)\(\d+\): .* \[usable: \d+\]", out, re.M)
    assert {"Produce", "Fetch", "ConsumerGroupHeartbeat", "EndTxn"} <= set(usable)
    return f"{len(usable)} usable APIs"


def _client_metrics(place: _Place) -> str:
    assert place.out("kafka-client-metrics", "--list").strip() == ""
    return "no subscriptions"


def _cluster(place: _Place) -> str:
    both = ("--bootstrap-server", place.address)
    found = tools().ask("kafka-cluster", "cluster-id", *both)
    assert re.fullmatch(r"Cluster ID: \S{22}\n", found.out), found
    endpoints = tools().ask("kafka-cluster", "list-endpoints", *both)
    assert place.address.split(":")[1] in endpoints.out, endpoints
    gone = tools().ask("kafka-cluster", "unregister", *both, "--id", "1")
    assert "the only broker cannot be unregistered" in gone.error, gone
    return "cluster id, one endpoint; unregister refused"


def _configs(place: _Place) -> str:
    topic = ("--entity-type", "topics", "--entity-name", "orders")
    place.out(
        "kafka-configs", "--alter", *topic, "--add-config", "retention.ms=5,max.message.bytes=9"
    )
    assert "retention.ms=5 " in place.out("kafka-configs", "--describe", *topic)
    place.out("kafka-configs", "--alter", *topic, "--delete-config", "retention.ms")
    out = place.out("kafka-configs", "--describe", *topic)
    assert "retention.ms" not in out
    assert "max.message.bytes=9 " in out
    wrong = ("--alter", *topic, "--add-config", "retention.ms=soon")
    assert "InvalidConfigurationException" in place.refused("kafka-configs", *wrong)
    brokers = place.out("kafka-configs", "--describe", "--entity-type", "brokers", "--all")
    assert "log.segment.bytes=" in brokers
    return "set, removed, refused; brokers described"


def _console_consumer(place: _Place) -> str:
    place.filled()
    show = [f"--formatter-property=print.{what}=true" for what in ("key", "offset", "headers")]
    place_to_end = ("--topic", "orders", "--from-beginning", "--max-messages", str(_COUNT))
    lines = place.out("kafka-console-consumer", *place_to_end, *show).splitlines()
    assert lines == [f"Offset:{n}\tNO_HEADERS\tk{n}\tv{n}" for n in range(_COUNT)]
    for protocol in ("classic", "consumer"):
        settings = (f"--command-property=group.protocol={protocol}", "--group", protocol)
        lines = place.out("kafka-console-consumer", *place_to_end, *settings).splitlines()
        assert lines == [f"v{n}" for n in range(_COUNT)]
    return f"{_COUNT} records alone, in a classic group and in a consumer group"


def _console_producer(place: _Place) -> str:
    settings = ("--reader-property=parse.key=true", "--reader-property=parse.headers=true")
    lines = [f"h:{n}\tk{n}\tv{n}" for n in range(_COUNT)]
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        codecs = ("--compression-codec", codec)
        place.out(
            "kafka-console-producer",
            "--topic",
            "orders",
            *settings,
            *codecs,
            stdin="\n".join(lines),
        )
    with LogManager.open(str(place.root)) as manager:
        rows = [row for n in range(2) for row in manager.reader("orders", n).records()]
    seen = sorted((row.key, row.value, row.headers[0].value) for row in rows)
    assert seen == sorted(5 * [(b"k%d" % n, b"v%d" % n, b"%d" % n) for n in range(_COUNT)])
    return f"{len(seen)} records with keys and headers, in five codecs"


def _console_share_consumer(place: _Place) -> str:
    said = place.ask("kafka-console-share-consumer", "--topic", "orders", "--timeout-ms", "60000")
    assert "Processed a total of 0 messages" in said.error, said  # it only logs the reason
    return "gives up at once: share groups are not served"


def _consumer_groups(place: _Place) -> str:
    place.filled()
    tool = "kafka-consumer-groups"
    group = ("--group", "billing")
    read = ("--topic", "orders", "--from-beginning", "--max-messages", str(_COUNT))
    place.out("kafka-console-consumer", *read, *group)
    assert place.out(tool, "--list").split() == ["billing"]
    assert _lag(place)["0"] == (str(_COUNT), str(_COUNT), "0")
    assert "Empty" in place.out(tool, "--describe", "--state", *group)
    reset = (tool, "--reset-offsets", "--execute", "--topic", "orders")
    place.out(*reset, "--to-offset", "7", *group)
    assert _lag(place)["0"] == ("7", str(_COUNT), str(_COUNT - 7))
    place.out(*reset, "--shift-by", "5", *group)
    place.out(*reset, "--to-datetime", "2020-01-01T00:00:00.000", *group)
    assert _lag(place)["0"][0] == "0"
    place.out(*reset, "--to-latest", *group)
    exported = place.out(
        tool, "--reset-offsets", "--to-current", "--all-topics", "--export", *group
    )
    assert ["orders", "0", str(_COUNT)] in list(csv.reader(exported.splitlines()))
    place.out(tool, "--delete-offsets", "--topic", "orders:1", *group)
    place.out(tool, "--delete", *group)
    assert place.out(tool, "--list").split() == []
    return "described, reset in five ways, deleted"


def _lag(place: _Place) -> dict[str, tuple[str, str, str]]:
    """Return committed offset, log end and lag of the group `billing`, by partition."""
    out = place.out("kafka-consumer-groups", "--describe", "--group", "billing")
    rows = [line.split() for line in out.splitlines() if line.startswith("billing")]
    return {row[2]: (row[3], row[4], row[5]) for row in rows}


def _consumer_perf_test(place: _Place) -> str:
    place.filled(2000)
    out = place.out("kafka-consumer-perf-test", "--topic", "orders", "--num-records", "2000")
    row = [cell.strip() for cell in out.splitlines()[-1].split(",")]
    assert row[4] == "2000", out
    return "2,000 records"


def _delegation_tokens(place: _Place) -> str:
    empty = place.root / "empty.properties"
    empty.touch()
    said = place.refused("kafka-delegation-tokens", "--describe", "--command-config", str(empty))
    assert "Delegation Token requests are not allowed on PLAINTEXT" in said
    return "refused as by a broker without SASL"


def _delete_records(place: _Place) -> str:
    place.filled()
    wanted = place.root / "offsets.json"
    wanted.write_text('{"partitions":[{"topic":"orders","partition":0,"offset":3}],"version":1}')
    out = place.out("kafka-delete-records", "--offset-json-file", str(wanted))
    assert "partition: orders-0\tlow_watermark: 3" in out
    with LogManager.open(str(place.root)) as manager:
        assert manager.reader("orders", 0).log_start_offset == 3
    return "log start 3"


def _dump_log(place: _Place) -> str:
    place.filled()
    segment = place.root / "orders-0" / "00000000000000000000.log"
    said = tools().ask("kafka-dump-log", "--files", str(segment), "--print-data-log")
    assert re.findall(r"payload: (\S+)", said.out) == [f"v{n}" for n in range(_COUNT)], said
    place.out(
        "kafka-console-consumer",
        *("--topic", "orders", "--from-beginning", "--max-messages", "1", "--group", "billing"),
    )
    found = ""
    for offsets in place.root.glob("__consumer_offsets-*/*.log"):
        options = ("--offsets-decoder", "--print-data-log", "--files", str(offsets))
        found += tools().ask("kafka-dump-log", *options).out
    assert '"group":"billing","topic":"orders","partition":0' in found, found[-3000:]
    return f"{_COUNT} records, and the offsets of a group"


def _e2e_latency(place: _Place) -> str:
    options = ("--num-records", "50", "--producer-acks", "all", "--record-size", "20")
    out = place.out("kafka-e2e-latency", "--topic", "orders", *options)
    found = re.search(r"Percentiles: 50th = (\d+)", out)
    assert found is not None, out
    return f"50 records one by one, median {found[1]} ms"


def _features(place: _Place) -> str:
    said = tools().ask("kafka-features", "--bootstrap-server", place.address, "describe")
    levels = dict(re.findall(r"Feature: (\S+)\t.*FinalizedVersionLevel: (\d+)", said.out))
    assert levels == {"group.version": "1", "transaction.version": "2"}, said
    return "group.version 1, transaction.version 2"


def _get_offsets(place: _Place) -> str:
    place.filled()
    for time_spec, expected in (("-1", _COUNT), ("-2", 0), ("-4", 0), ("-3", _COUNT - 1), ("0", 0)):
        out = place.out("kafka-get-offsets", "--topic", "orders", "--time", time_spec)
        assert f"orders:0:{expected}" in out.splitlines(), (time_spec, out)
    return "earliest, latest, earliest local, largest timestamp, a time"


def _groups(place: _Place) -> str:
    place.filled()
    read = ("--topic", "orders", "--from-beginning", "--max-messages", "1")
    for protocol in ("classic", "consumer"):
        settings = (f"--command-property=group.protocol={protocol}", "--group", f"a-{protocol}")
        place.out("kafka-console-consumer", *read, *settings)
    rows = [line.split() for line in place.out("kafka-groups", "--list").splitlines()[1:]]
    expected = [["a-classic", "Classic", "consumer"], ["a-consumer", "Consumer", "consumer"]]
    assert sorted(rows) == expected
    return "a classic group and a consumer group"


def _leader_election(place: _Place) -> str:
    which = ("--topic", "orders", "--partition", "0")
    out = place.out("kafka-leader-election", "--election-type", "preferred", *which)
    assert "Valid replica already elected for partitions orders-0" in out
    return "the preferred leader leads already"


def _log_dirs(place: _Place) -> str:
    place.filled()
    out = place.out("kafka-log-dirs", "--describe", "--topic-list", "orders")
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    (log_dir,) = found["brokers"][0]["logDirs"]
    sizes = {each["partition"]: each["size"] for each in log_dir["partitions"]}
    on_disk = (place.root / "orders-0" / "00000000000000000000.log").stat().st_size
    assert sizes == {"orders-0": on_disk, "orders-1": 0}
    return f"{on_disk} bytes, as on the disk"


def _metadata_quorum(place: _Place) -> str:
    both = ("--bootstrap-server", place.address, "describe")
    said = tools().ask("kafka-metadata-quorum", *both, "--status")
    assert re.search(r"^LeaderId: +1$", said.out, re.M), said
    said = tools().ask("kafka-metadata-quorum", *both, "--replication")
    assert re.search(r"^1 +\t.*\tLeader\b", said.out, re.M), said
    return "one voter, which leads"


def _producer_perf_test(place: _Place) -> str:
    sizes = ("--num-records", "2000", "--record-size", "100", "--throughput", "-1")
    out = place.out("kafka-producer-perf-test", "--topic", "orders", *sizes)
    assert "2000 records sent" in out
    transactional = ("--transactional-id", "perf", "--transaction-duration-ms", "50")
    out = place.out("kafka-producer-perf-test", "--topic", "orders", *sizes, *transactional)
    assert "2000 records sent" in out
    with LogManager.open(str(place.root)) as manager:
        rows = [row for n in range(2) for row in manager.reader("orders", n).records()]
    assert len(rows) == 4000
    return "2,000 records, and 2,000 in transactions"


def _reassign_partitions(place: _Place) -> str:
    out = place.out("kafka-reassign-partitions", "--list")
    assert "No partition reassignments found." in out
    return "none found"


def _replica_verification(place: _Place) -> str:
    place.filled()
    options = ("--topics-include", "orders", "--report-interval-ms", "500")
    with _alone("kafka-replica-verification", "--broker-list", place.address, *options) as lines:
        report = next(line for line in lines if "max lag is" in line)
    assert "max lag is 0 " in report
    return report.split(",", 1)[1].split(":", 1)[1].strip()


@contextlib.contextmanager
def _alone(script: str, *arguments: str) -> Iterator[Iterator[str]]:
    """Run a tool in a JVM of its own, as it runs until it is stopped; yield its output's lines."""
    process = subprocess.Popen(
        [*command("kafka-tools"), CLASSES[script], *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        encoding="utf-8",
    )
    late = threading.Timer(_PATIENCE_S, process.kill)
    late.start()
    assert process.stdout is not None
    try:
        yield process.stdout
    finally:
        late.cancel()
        process.kill()
        process.communicate()


def _share_groups(place: _Place) -> str:
    assert place.out("kafka-share-groups", "--list").strip() == ""
    said = place.refused("kafka-share-groups", "--describe", "--group", "any")
    assert "does not support SHARE_GROUP_DESCRIBE" in said
    return "none listed; describe refused"


def _streams_groups(place: _Place) -> str:
    assert place.out("kafka-streams-groups", "--list").strip() == ""
    said = place.refused("kafka-streams-groups", "--describe", "--group", "any")
    assert "does not support STREAMS_GROUP_DESCRIBE" in said
    return "none listed; describe refused"


def _topics(place: _Place) -> str:
    tool = "kafka-topics"
    settings = ("--partitions", "2", "--config", "cleanup.policy=compact")
    place.out(tool, "--create", "--topic", "payments", *settings)
    assert place.out(tool, "--list").split() == ["orders", "payments"]
    place.out(tool, "--alter", "--topic", "payments", "--partitions", "3")
    out = place.out(tool, "--describe", "--topic", "payments")
    assert "PartitionCount: 3\tReplicationFactor: 1\tConfigs: cleanup.policy=compact" in out
    assert "exists" in place.refused(tool, "--create", "--topic", "payments")
    assert place.out(tool, "--describe", "--under-replicated-partitions").strip() == ""
    place.out(tool, "--delete", "--topic", "payments")
    assert place.out(tool, "--list").split() == ["orders"]
    return "created, grown, described, deleted"


def _transactions(place: _Place) -> str:
    sizes = ("--num-records", "200", "--record-size", "100", "--throughput", "-1")
    transactional = ("--transactional-id", "perf", "--transaction-duration-ms", "50")
    place.out("kafka-producer-perf-test", "--topic", "orders", *sizes, *transactional)
    ask = ("kafka-transactions", "--bootstrap-server", place.address)
    listed = tools().ask(*ask, "list")
    assert re.search(r"^perf\s+1\s+\d+\s+CompleteCommit", listed.out, re.M), listed
    described = tools().ask(*ask, "describe", "--transactional-id", "perf")
    assert "CompleteCommit" in described.out, described
    partition = ("--topic", "orders", "--partition", "0")
    producers = tools().ask(*ask, "describe-producers", *partition)
    assert len(producers.out.splitlines()) >= 1, producers
    hanging = tools().ask(*ask, "find-hanging", "--broker-id", "1")
    assert len(hanging.out.splitlines()) == 1, hanging
    return "listed, described; none hangs"


def _verifiable_consumer(place: _Place) -> str:
    place.filled()
    for protocol in ("classic", "consumer"):
        options = ("--max-messages", str(_COUNT), "--group-id", protocol)
        out = place.out(
            "kafka-verifiable-consumer",
            *("--topic", "orders", *options, "--group-protocol", protocol),
            *(() if protocol == "classic" else ("--reset-policy", "earliest")),
        )
        events = [json.loads(line) for line in out.splitlines()]
        counts = [each["count"] for each in events if each["name"] == "records_consumed"]
        assert sum(counts) == _COUNT, out
        committed = [each for each in events if each["name"] == "offsets_committed"]
        assert committed and all(each["success"] for each in committed), out
    return f"{_COUNT} records in each protocol, offsets committed"


def _verifiable_producer(place: _Place) -> str:
    tool = ("kafka-verifiable-producer", "--bootstrap-server", place.address)
    with _alone(*tool, "--topic", "orders", "--max-messages", "100") as lines:
        last = json.loads(list(lines)[-1])
    assert (last["sent"], last["acked"]) == (100, 100)
    return "100 of 100 acknowledged"


_CHECKS: Final[dict[str, _Check]] = {
    "kafka-acls": _acls,
    "kafka-broker-api-versions": _broker_api_versions,
    "kafka-client-metrics": _client_metrics,
    "kafka-cluster": _cluster,
    "kafka-configs": _configs,
    "kafka-console-consumer": _console_consumer,
    "kafka-console-producer": _console_producer,
    "kafka-console-share-consumer": _console_share_consumer,
    "kafka-consumer-groups": _consumer_groups,
    "kafka-consumer-perf-test": _consumer_perf_test,
    "kafka-delegation-tokens": _delegation_tokens,
    "kafka-delete-records": _delete_records,
    "kafka-dump-log": _dump_log,
    "kafka-e2e-latency": _e2e_latency,
    "kafka-features": _features,
    "kafka-get-offsets": _get_offsets,
    "kafka-groups": _groups,
    "kafka-leader-election": _leader_election,
    "kafka-log-dirs": _log_dirs,
    "kafka-metadata-quorum": _metadata_quorum,
    "kafka-producer-perf-test": _producer_perf_test,
    "kafka-reassign-partitions": _reassign_partitions,
    "kafka-replica-verification": _replica_verification,
    "kafka-share-groups": _share_groups,
    "kafka-streams-groups": _streams_groups,
    "kafka-topics": _topics,
    "kafka-transactions": _transactions,
    "kafka-verifiable-consumer": _verifiable_consumer,
    "kafka-verifiable-producer": _verifiable_producer,
}


def _on_a_gateway(check: _Check) -> Callable[[Path], str]:
    def run(scratch: Path) -> str:
        root = scratch / "root"
        with LogManager.open(root, create=True) as manager:
            manager.create_topic("orders", 2)
        with serve(root) as gateway:
            return check(_Place(gateway, root))

    return run


PROGRAMS: Final = {name: _on_a_gateway(check) for name, check in _CHECKS.items()}
