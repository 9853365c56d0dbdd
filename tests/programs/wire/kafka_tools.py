"""Run Kafka's own Java tests of its tools and of its protocol against gateways.

    python -m tests.programs.wire.kafka_tools [--classes REGEX] [--run REGEX]

Maven fetches the test jars that `kafka-tools/pom.xml` names into `.cache`; `jars.sha256` has their
checksums. An extension of JUnit in `kafka-tools/` stands in for the one that starts clusters for
Kafka's tests: each test gets a gateway on a fresh root. A test that asks for what one broker does
not have, or that looks into the broker's process, is reported as skipped, with the reason. Classes
about what the gateway does not serve are left out: quotas, share and Streams groups. The
integration tests of Kafka's clients are in no jar that Kafka publishes.
"""

import argparse
import contextlib
import hashlib
import json
import re
import shutil
import socketserver
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from streamlog.config.log_config import broker_synonyms
from streamlog.config.server_config import root_settings
from streamlog.gateway import Address
from tests.programs.wire.suites import (
    CACHE,
    Outcome,
    Reasons,
    fresh_gateway,
    run_suite,
)
from tests.programs.wire.suites import (
    OMITTED as OMITTED_RESULT,
)

VERSION: Final = "4.2.0"
SUITE: Final = f"Kafka {VERSION}, tests of tools and requests"
SOURCES: Final = Path(__file__).with_name("kafka-tools")
SUMS: Final = SOURCES / "jars.sha256"
TEST_TIMEOUT_S: Final = 120
RUN_TIMEOUT_S: Final = 3600
AT_ONCE: Final = 2  # their tests wait more than they work
_NOTE_LENGTH: Final = 300

_TOOLS: Final = "org.apache.kafka.tools"
_GROUPS: Final = f"{_TOOLS}.consumer.group"
_REQUESTS: Final = "kafka.server"
CLASSES: Final = (
    f"{_TOOLS}.BrokerApiVersionsCommandTest",
    f"{_TOOLS}.ClusterToolTest",
    f"{_TOOLS}.ConfigCommandIntegrationTest",
    f"{_TOOLS}.DeleteRecordsCommandTest",
    f"{_TOOLS}.FeatureCommandTest",
    f"{_TOOLS}.GetOffsetShellTest",
    f"{_TOOLS}.GroupsCommandTest",
    f"{_TOOLS}.LeaderElectionCommandTest",
    f"{_TOOLS}.LogDirsCommandTest",
    f"{_TOOLS}.MetadataQuorumCommandTest",
    f"{_TOOLS}.TopicCommandTest",
    f"{_TOOLS}.UserScramCredentialsCommandTest",
    f"{_TOOLS}.AclCommandTest",
    f"{_TOOLS}.consumer.ConsoleConsumerTest",
    f"{_GROUPS}.DeleteConsumerGroupsTest",
    f"{_GROUPS}.DeleteOffsetsConsumerGroupCommandIntegrationTest",
    f"{_GROUPS}.DescribeConsumerGroupTest",
    f"{_GROUPS}.ListConsumerGroupTest",
    f"{_GROUPS}.ResetConsumerGroupOffsetTest",
    f"{_TOOLS}.reassign.ReassignPartitionsCommandTest",
    "org.apache.kafka.api.EndToEndClusterIdTest",
    "kafka.api.GroupCoordinatorIntegrationTest",
    "kafka.coordinator.transaction.ProducerIntegrationTest",
    f"{_REQUESTS}.ApiVersionsRequestTest",
    f"{_REQUESTS}.ConsumerGroupDescribeRequestTest",
    f"{_REQUESTS}.ConsumerGroupHeartbeatRequestTest",
    f"{_REQUESTS}.ConsumerProtocolMigrationTest",
    f"{_REQUESTS}.DeleteGroupsRequestTest",
    f"{_REQUESTS}.DescribeGroupsRequestTest",
    f"{_REQUESTS}.DescribeQuorumRequestTest",
    f"{_REQUESTS}.HeartbeatRequestTest",
    f"{_REQUESTS}.JoinGroupRequestTest",
    f"{_REQUESTS}.LeaveGroupRequestTest",
    f"{_REQUESTS}.ListGroupsRequestTest",
    f"{_REQUESTS}.OffsetCommitRequestTest",
    f"{_REQUESTS}.OffsetDeleteRequestTest",
    f"{_REQUESTS}.OffsetFetchRequestTest",
    f"{_REQUESTS}.SaslApiVersionsRequestTest",
    f"{_REQUESTS}.SyncGroupRequestTest",
    f"{_REQUESTS}.TxnOffsetCommitRequestTest",
    f"{_REQUESTS}.WriteTxnMarkersRequestTest",
)


_OTHER_GROUPS: Final = "share groups and Streams groups are not served"
_NODES: Final = "compares what several nodes report"
_INSIDE: Final = "looks for plugins of the broker in the process of the test"
OMITTED: Final[Reasons] = {
    "ApiVersionsRequestTest.testApiVersionsRequest": _OTHER_GROUPS,
    "ApiVersionsRequestTest.testApiVersionsRequestIncludesUnreleasedApis": _OTHER_GROUPS,
    "BrokerApiVersionsCommandTest.testBrokerApiVersionsCommandOutput": _OTHER_GROUPS,
    "ConfigCommandIntegrationTest.testAlterStreamsGroupNumOfStandbyReplicas": _OTHER_GROUPS,
    "ConfigCommandIntegrationTest.testDescribeStreamsGroupConfigs": _OTHER_GROUPS,
    "DescribeQuorumRequestTest.testDescribeQuorum": _NODES,
    "EndToEndClusterIdTest.testEndToEndWithClassicProtocol": _INSIDE,
    "EndToEndClusterIdTest.testEndToEndWithConsumerProtocol": _INSIDE,
    "GroupsCommandTest.testGroupCommand": _OTHER_GROUPS,
    "MetadataQuorumCommandTest.testDescribeQuorumReplicationSuccessful": _NODES,
    "TopicCommandTest.testDescribeUnderReplicatedPartitionsWhenReassignmentIsInProgress": (
        "moves replicas between six brokers"
    ),
}
_BROKERS_FILE: Final = "clients cannot change the broker's settings, which are those of a file"
_ORDER: Final = "expects Kafka's order, that of a hash table; here it is that of creation"
REASONS: Final[Reasons] = {
    **OMITTED,
    "ConfigCommandIntegrationTest.testAddConfigKeyValuesUsingCommand[1]": _BROKERS_FILE,
    "ConfigCommandIntegrationTest.testClientMetricsConfigUpdate[1]": "no clients' metrics",
    "ConfigCommandIntegrationTest.testDynamicBrokerConfigUpdateUsingKraft[1]": _BROKERS_FILE,
    "ConfigCommandIntegrationTest.testExitWithNonZeroStatusOnUpdatingUnallowedConfig[1]": (
        _BROKERS_FILE
    ),
    "ConfigCommandIntegrationTest.testNullStatusOnKraftCommandAlterClientMetrics[1]": (
        "no clients' metrics"
    ),
    "ConfigCommandIntegrationTest.testNullStatusOnKraftCommandAlterUserQuota[1]": (
        "there are no quotas"
    ),
    "ConfigCommandIntegrationTest.testUpdateBrokerConfigNotAffectedByInvalidConfig[1]": (
        _BROKERS_FILE
    ),
    "ConfigCommandIntegrationTest.testUpdateClusterWideConfigInKRaftThenShouldSuccessful[1]": (
        _BROKERS_FILE
    ),
    "ConfigCommandIntegrationTest.testUpdateInvalidBrokerConfigs[1]": _BROKERS_FILE,
    "ConfigCommandIntegrationTest"
    ".testUpdatePerBrokerConfigWithListenerNameInKRaftThenShouldSuccessful[1]": _BROKERS_FILE,
    "ConsumerGroupDescribeRequestTest.testConsumerGroupDescribeWithNewGroupCoordinator[1]": _ORDER,
    "ConsumerGroupHeartbeatRequestTest"
    ".testConsumerGroupHeartbeatIsInaccessibleWhenDisabledByStaticConfig[1]": (
        "both group protocols are always served"
    ),
    "ListGroupsRequestTest.testListGroupsWithNewConsumerGroupProtocol[1]": _ORDER,
    "MetadataQuorumCommandTest.testDescribeQuorumStatusSuccessful[2]": _NODES,
    "OffsetFetchRequestTest.testGroupErrors[1]": (
        "expects no coordinator before the topic of offsets exists; this server always is one"
    ),
    "SaslApiVersionsRequestTest.testApiVersionsRequestAfterSaslHandshakeRequest[1]": (
        "expects PLAIN as the only mechanism; SCRAM is offered, too"
    ),
    "UserScramCredentialsCommandTest.testUserScramCredentialsRequests[1]": (
        "users are those of a file, and there are no quotas"
    ),
}


# ---- Kafka's jars and our classes ----------------------------------------------------------------
def jars() -> Path:
    """Return the folder with Kafka's tests and what they need; fetch it the first time.

    Raises:
        ValueError: A jar is not the one that `jars.sha256` names.
    """
    folder = CACHE / f"kafka-tools-{VERSION}"
    if not folder.is_dir():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
            fetched = Path(scratch, "libs")
            goal = ["dependency:copy-dependencies", f"-DoutputDirectory={fetched}"]
            subprocess.run(
                ["mvn", "-q", "-B", "-f", str(SOURCES / "pom.xml"), *goal], cwd=scratch, check=True
            )
            _check(fetched)
            shutil.move(fetched, folder)
    _check(folder)
    return folder


def sums(folder: Path) -> str:
    """Return the checksums of a folder's jars, as `sha256sum` prints them."""
    lines = [
        f"{hashlib.sha256(jar.read_bytes()).hexdigest()}  {jar.name}\n"
        for jar in sorted(folder.glob("*.jar"))
    ]
    return "".join(lines)


def _check(folder: Path) -> None:
    found, expected = set(sums(folder).splitlines()), set(SUMS.read_text("utf-8").splitlines())
    if found != expected:
        others = sorted(line.split()[1] for line in found ^ expected)
        raise ValueError(f"{folder}: not the jars of {SUMS.name}: {', '.join(others)}")


@contextlib.contextmanager
def class_path() -> Iterator[str]:
    """Compile our classes; yield a class path that has them in front of Kafka's tests."""
    libraries = f"{jars()}/*"
    with tempfile.TemporaryDirectory(prefix="streamlog-wire-") as classes:
        sources = [str(each) for each in sorted(SOURCES.glob("*.java"))]
        subprocess.run(["javac", "-cp", libraries, "-d", classes, *sources], check=True)
        yield f"{SOURCES}:{classes}:{libraries}"


# ---- gateways for the tests ----------------------------------------------------------------------
class _Gateways(socketserver.ThreadingTCPServer):
    """Serves a gateway for each connection, as long as that is open."""

    daemon_threads = True


class _Connection(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        wanted = json.loads(self.rfile.readline())
        known = {*root_settings(), *broker_synonyms()}
        settings = {key: value for key, value in wanted["properties"].items() if key in known}
        settings.setdefault("auto.create.topics.enable", "true")  # Kafka's default
        properties = "\n".join(f"{key}={value}" for key, value in settings.items())
        try:
            with fresh_gateway(
                properties, users=wanted["users"], node_id=0, advertise=Address("localhost", 0)
            ) as gateway:
                self._answer({"address": gateway.bootstrap_servers})
                self.rfile.read()
        except Exception as error:  # noqa: BLE001  # reported by the test
            self._answer({"error": f"{type(error).__name__}: {error}"})

    def _answer(self, fields: dict[str, str]) -> None:
        self.wfile.write(json.dumps(fields).encode() + b"\n")


@contextlib.contextmanager
def _gateways() -> Iterator[int]:
    """Yield the port that starts gateways."""
    with _Gateways(("127.0.0.1", 0), _Connection) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


# ---- the run -------------------------------------------------------------------------------------
def run(classes: Sequence[str], pattern: str) -> tuple[int, list[Outcome]]:
    """Run the cluster tests of classes; return the worst exit code, and the outcomes.

    The whole traces of failures stay in `.cache/wire/kafka_tools-*.results`, what the tests print
    in the logs beside them.
    """
    shares = [list(classes[number::AT_ONCE]) for number in range(AT_ONCE)]
    with class_path() as found, _gateways() as port, ThreadPoolExecutor(AT_ONCE) as pool:
        options = ["-Xmx1g", "-Djava.security.manager=allow", "-cp", found]
        options += [f"-Dstreamlog.gateways={port}", f"-Dstreamlog.timeout={TEST_TIMEOUT_S} s"]
        ends = [
            pool.submit(_run_share, number, options, pattern, share)
            for number, share in enumerate(shares)
            if share
        ]
        codes, lines = zip(*(end.result() for end in ends), strict=True)
    outcomes = [outcome(line) for share in lines for line in share]
    simple = {each.rpartition(".")[2] for each in classes}
    omitted = [
        Outcome(test, OMITTED_RESULT)
        for test in OMITTED
        if test.partition(".")[0] in simple and re.search(pattern, test)
    ]
    return max(codes), outcomes + omitted


def _run_share(
    number: int, options: list[str], pattern: str, classes: list[str]
) -> tuple[int, list[str]]:
    """Run classes in a JVM of their own; return its exit code, and the results."""
    results = CACHE / f"kafka_tools-{number}.results"
    results.unlink(missing_ok=True)
    omitted = "|".join(map(re.escape, OMITTED))
    command = ["java", *options, "streamlog.RunTests", str(results), pattern, omitted, *classes]
    with results.with_suffix(".log").open("wb") as output:
        done = subprocess.run(
            command, stdout=output, stderr=output, timeout=RUN_TIMEOUT_S, check=False
        )
    return done.returncode, results.read_text("utf-8").splitlines()


def outcome(line: str) -> Outcome:
    """Return the outcome that a line of results has."""
    fields = json.loads(line)
    note = _note(fields["note"]) if fields["result"] != "passed" else ""
    return Outcome(f"{fields['test']}{fields['index']}", fields["result"], note)


def _note(trace: str) -> str:
    """Return the first line of a stack trace, without the exception's package."""
    first = " ".join(trace.split("\n\tat ")[0].split())
    return re.sub(r"^[\w.]+\.(\w+)", r"\1", first)[:_NOTE_LENGTH]


def main() -> int:
    """Run the suite."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--classes", default="", help="only classes whose name matches")
    parser.add_argument("--run", default="", help="only tests whose Class.method matches")
    given = parser.parse_args()
    classes = [each for each in CLASSES if re.search(given.classes, each)]
    is_whole = not given.run and not given.classes
    module = "tests.programs.wire.kafka_tools"
    return run_suite(
        SUITE, module, lambda: run(classes, given.run), is_whole=is_whole, reasons=REASONS
    )


if __name__ == "__main__":
    sys.exit(main())
