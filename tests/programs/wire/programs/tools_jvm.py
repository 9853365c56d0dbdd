"""Kafka's command-line tools, run one after another in one JVM, which starts once."""

import atexit
import json
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from tests.programs.wire.programs.jars import command

__all__ = ["CLASSES", "Said", "Tools", "tools"]

_SOURCE: Final = Path(__file__).with_name("Tools.java")

# The scripts in Kafka's bin, and the class that each one starts.
CLASSES: Final = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-share-consumer": "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-dump-log": "kafka.tools.DumpLogSegments",
    "kafka-e2e-latency": "org.apache.kafka.tools.EndToEndLatency",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-replica-verification": "org.apache.kafka.tools.ReplicaVerificationTool",
    "kafka-share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "kafka-streams-groups": "org.apache.kafka.tools.streams.StreamsGroupCommand",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
}


class Said(NamedTuple):
    """What a tool printed, and its exit code."""

    code: int
    out: str
    error: str


class Tools:
    """The JVM."""

    def __init__(self) -> None:
        self._complaints = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by close()
        self._process = subprocess.Popen(
            [*command("kafka-tools", "kafka-connect"), str(_SOURCE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            encoding="utf-8",
        )

    def ask(self, script: str, *arguments: str, stdin: str = "") -> Said:
        """Run the tool that a script of Kafka's starts.

        Raises:
            RuntimeError: The JVM died.
        """
        request = {"tool": CLASSES[script], "arguments": arguments, "input": stdin}
        into, out = self._process.stdin, self._process.stdout
        assert into is not None
        assert out is not None
        into.write(json.dumps(request) + "\n")
        into.flush()
        line = out.readline()
        if not line:
            self._complaints.seek(0)
            raise RuntimeError(f"the tools' JVM died: {self._complaints.read()[-2000:]}")
        return Said(**json.loads(line))

    def close(self) -> None:
        """End the JVM."""
        self._process.communicate()
        self._complaints.close()


@cache
def tools() -> Tools:
    """Return the JVM of this process; it ends with it."""
    started = Tools()
    atexit.register(started.close)
    return started
