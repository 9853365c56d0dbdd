"""Run the tests of confluent-kafka-go, librdkafka's Go binding, against gateways.

    python -m tests.programs.wire.confluent_kafka_go [--run PATTERN] [--protocol consumer]

Go fetches the version that `confluent-kafka-go/go.mod` names, with the checksums of `go.sum`, into
`.cache`. It is also the nearest to the integration tests of confluent-kafka-python, which that
package leaves out of its source distribution. The suite gets two gateways on fresh roots: one
without authentication, one with SASL. The exit code is 0 if no test failed without a reason.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.programs.wire.franz_go import outcomes
from tests.programs.wire.go_command import go, go_environment
from tests.programs.wire.suites import Outcome, Reasons, fresh_gateway, run_suite

MODULE: Final = Path(__file__).with_name("confluent-kafka-go")
PACKAGE: Final = "github.com/confluentinc/confluent-kafka-go/v2/kafka"
SUITE: Final = "confluent-kafka-go v2.11.1 kafka"
TIMEOUT_S: Final = 900
USER, PASSWORD = "testuser", "testpass"
TESTS: Final = "^(TestIntegration|TestTransactional.*)$"  # the others need no broker
SETTINGS: Final = "auto.create.topics.enable=true\nnum.partitions=4\n"
_ACLS: Final = "there are no access control lists"
REASONS: Final[Reasons] = {
    "TestIntegration": "some of its subtests fail",
    "TestIntegration/TestAdminACLs": _ACLS,
    "TestIntegration/TestAdminClient_DescribeCluster": _ACLS,
    "TestIntegration/TestAdminClient_DescribeConsumerGroupsAuthorizedOperations": _ACLS,
    "TestIntegration/TestAdminClient_DescribeTopics": _ACLS,
    "TestIntegration/TestAdminClient_UserScramCredentials": (
        "users stand in the file of `--sasl-users`"
    ),
    "TestIntegration/TestAdminConfig": (
        "the elements of `cleanup.policy` are shown in alphabetical order, not as they were given"
    ),
    "TestTransactionalProducer": (
        "it takes for granted that reports come before `Flush(-1)`, which does not wait"
    ),
}


def run(pattern: str, protocol: str) -> tuple[int, list[Outcome]]:
    """Run the tests that a pattern selects; return go's exit code, and the outcomes."""
    with (
        fresh_gateway(SETTINGS) as gateway,
        fresh_gateway(SETTINGS, f"{USER}:{PASSWORD}\n") as guarded,
        tempfile.TemporaryDirectory(prefix="streamlog-wire-") as work,
    ):
        settings = {
            "Brokers": gateway.bootstrap_servers,
            "BrokersSasl": guarded.bootstrap_servers,
            "SaslUsername": USER,
            "SaslPassword": PASSWORD,
            "SaslMechanism": "PLAIN",
            "TopicName": "test",
            "GroupID": "testgroup",
            "PerfMsgCount": 1000,
            "PerfMsgSize": 100,
            "Config": ["broker.address.family=v4"],
        }
        Path(work, "testconf.json").write_text(json.dumps(settings), "utf-8")
        environment = go_environment() | {"TEST_CONSUMER_GROUP_PROTOCOL": protocol}
        limits = (f"-timeout={TIMEOUT_S}s", f"-run={pattern}", f"-exec=env -C {work}")
        done = subprocess.run(
            [go(), "test", "-json", "-count=1", *limits, PACKAGE],
            cwd=MODULE,
            env=environment,
            stdout=subprocess.PIPE,
            encoding="utf-8",
            check=False,
        )
    return done.returncode, list(outcomes(done.stdout.splitlines()))


def main() -> int:
    """Run the suite."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", default=TESTS, help="only tests that match, as in go test -run")
    parser.add_argument("--protocol", choices=("classic", "consumer"), default="classic")
    given = parser.parse_args()
    return run_suite(
        SUITE,
        "tests.programs.wire.confluent_kafka_go",
        lambda: run(given.run, given.protocol),
        is_whole=given.run == TESTS and given.protocol == "classic",
        reasons=REASONS,
    )


if __name__ == "__main__":
    sys.exit(main())
