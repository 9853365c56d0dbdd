"""Apache Kafka's own classes, in a JVM that answers questions: `oracle/` beside this file.

    kafka = Kafka.start()
    answer = kafka.ask("open", directory="/tmp/root/orders-0", clean=True)

Needs Java 17 with its compiler, and Kafka's jars. They are searched in the folder that
`STREAMLOG_KAFKA_LIBS` names, then in `.cache/jars/kafka_2.13-4.2.0`; if neither has them, Maven
fetches them once. Kafka opens directories in place, so pass copies.

Other releases are run by their dump tool, each in its own JVM:

    dump("3.9.1", ["/tmp/root/orders-0/00000000000000000000.log"])
"""

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

VERSION = "4.2.0"
LIBS = "STREAMLOG_KAFKA_LIBS"
CACHE = Path(__file__).resolve().parents[3] / ".cache"
SOURCES = Path(__file__).resolve().parent / "oracle"
FETCH_TIMEOUT_S = 400
QUICK_TO_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xmx512m")
POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>streamlog</groupId><artifactId>oracle</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>{artifact}</artifactId>
      <version>{version}</version>
    </dependency>{more}
  </dependencies>
</project>
"""
DEPENDENCY = """
    <dependency>
      <groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>
    </dependency>"""


class Release(NamedTuple):
    """The Maven artifact of a Kafka release, and the class of its dump tool."""

    artifact: str
    tool: str = "kafka.tools.DumpLogSegments"


RELEASES = {
    "4.3.0": Release("kafka-tools", "org.apache.kafka.tools.DumpLogSegments"),
    VERSION: Release("kafka_2.13"),
    "3.9.1": Release("kafka_2.13"),
    "0.10.2.2": Release("kafka_2.11"),
    "0.8.2.2": Release("kafka_2.11"),
}
TIERED_STORAGE = (
    "kafka-storage",
    "50afc148ea93d0499e63b8a56645b81b4d4102ca356d806261a6cf729ef1d88d",
)
SCALA_2_13_SINCE = (2, 4)


class KafkaUnavailableError(Exception):
    """Kafka is not available on this machine; the message has the reason."""


class Kafka:
    """A JVM with Kafka's classes; a context manager."""

    def __init__(self, command: Sequence[str]) -> None:
        self._turn = threading.Lock()
        self._complaints = tempfile.TemporaryFile("w+")  # noqa: SIM115  # closed by close()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            text=True,
            encoding="utf-8",
        )

    @classmethod
    def start(cls, *options: str) -> "Kafka":
        """Start the JVM; the first time, fetch and compile what it needs.

        Args:
            options: JVM options; by default those for a fast start.

        Raises:
            KafkaUnavailableError: Java, its compiler or the jars are missing.
        """
        classes = f"{_compiled(_jars(VERSION, RELEASES[VERSION].artifact))}:{classpath()}"
        return cls([java(), *(options or QUICK_TO_START), "-cp", classes, "Oracle"])

    def ask(self, ask: str, **fields: Any) -> dict[str, Any]:
        """Return the answer to a question; an error of Kafka's is an answer with field `error`.

        Threads that ask take turns.
        """
        with self._turn:
            self.send(ask, **fields)
            line = self._line()
        return self._answer(line)

    def send(self, ask: str, **fields: Any) -> None:
        """Send a question; the next call must be `receive`."""
        stdin = self._process.stdin
        assert stdin is not None
        stdin.write(json.dumps({"ask": ask, **fields}) + "\n")
        stdin.flush()

    def receive(self) -> dict[str, Any]:
        """Return the answer to the question that was sent."""
        return self._answer(self._line())

    def _line(self) -> str:
        stdout = self._process.stdout
        assert stdout is not None
        return stdout.readline()

    def _answer(self, line: str) -> dict[str, Any]:
        if not line:
            self._complaints.seek(0)
            raise RuntimeError(f"Kafka's JVM died: {self._complaints.read()[-2000:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End the JVM."""
        self._process.communicate()
        self._complaints.close()

    def __enter__(self) -> "Kafka":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def java() -> str:
    """Return the path of Java.

    Raises:
        KafkaUnavailableError: It is not installed.
    """
    return _tool("java")


def classpath(version: str = VERSION) -> str:
    """Return the class path of a release's dump tool; see `RELEASES`.

    Raises:
        KafkaUnavailableError: The jars cannot be fetched.
    """
    return f"{_jars(version, RELEASES[version].artifact)}/*"


def broker_classpath(version: str = VERSION) -> str:
    """Return the class path of a release's broker, 0.11 or later.

    Raises:
        KafkaUnavailableError: The jars cannot be fetched.
    """
    scala = "2.13" if number_of(version) >= SCALA_2_13_SINCE else "2.12"
    return f"{_jars(version, f'kafka_{scala}')}/*"


def tool_command(name: str) -> list[str]:
    """Return the command of one of the current release's command-line tools.

    Args:
        name: Its class, such as `org.apache.kafka.tools.TopicCommand`.

    Raises:
        KafkaUnavailableError: Java or the jars are missing.
    """
    return [java(), *QUICK_TO_START, "-cp", f"{_jars(VERSION, 'kafka-tools')}/*", name]


def run_tool(name: str, *arguments: str, timeout_s: float = 120) -> str:
    """Return the output of one of the current release's command-line tools.

    Args:
        name: Its class, such as `org.apache.kafka.tools.TopicCommand`.
        arguments: Its arguments.
        timeout_s: How long it may take.

    Raises:
        KafkaUnavailableError: Java or the jars are missing.
        RuntimeError: The tool failed.
    """
    command = [*tool_command(name), *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    if ran.returncode != 0:
        raise RuntimeError(f"{name} failed: {ran.stdout}{ran.stderr}")
    return ran.stdout


def client_jar() -> Path:
    """Return the jar of the current release's client library.

    Raises:
        KafkaUnavailableError: The jars cannot be fetched.
    """
    return _jars(VERSION, "kafka_2.13") / f"kafka-clients-{VERSION}.jar"


def dump(version: str, files: Iterable[Path]) -> str:
    """Return the output of a release's dump tool for log files, all records included.

    Raises:
        KafkaUnavailableError: Java or the jars are missing.
    """
    names = ",".join(map(str, files))
    options = ["--deep-iteration", "--print-data-log", "--files", names]
    ran = subprocess.run(
        [java(), *QUICK_TO_START, "-cp", classpath(version), RELEASES[version].tool, *options],
        capture_output=True,
        timeout=FETCH_TIMEOUT_S,
        check=True,
    )
    return (ran.stdout + ran.stderr).decode(errors="replace")


def _tool(name: str) -> str:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(name, path=f"{home}/bin") if home else None
    found = found or shutil.which(name)
    if found is None:
        raise KafkaUnavailableError(f"{name} is not installed")
    return found


def number_of(version: str) -> tuple[int, ...]:
    """Return a release's number in comparable form."""
    return tuple(map(int, version.split(".")))


def _more_for_java_17(number: tuple[int, ...]) -> Iterator[tuple[str, str, str]]:
    """Yield additional artifacts that a broker needs on a newer Java than it was built for."""
    if (0, 11) <= number < (1, 1):  # encodes the cluster id with a class that Java removed after 10
        yield "javax.xml.bind", "jaxb-api", "2.3.1"
    if (2, 0) <= number < (2, 6):  # its own ZooKeeper fails to print an address (ZOOKEEPER-3779)
        yield "org.apache.zookeeper", "zookeeper", "3.4.12" if number < (2, 4) else "3.5.10"


def _jars(version: str, artifact: str) -> Path:
    """Return the folder with an artifact of a release and its dependencies."""
    jar = f"{artifact}-{version}.jar"
    given = os.environ.get(LIBS) if version == VERSION else None
    folder = Path(given) if given else CACHE / "jars" / f"{artifact}-{version}"
    if (folder / jar).is_file():
        return folder
    if given:
        raise KafkaUnavailableError(f"{LIBS}: {given} has no {jar}")
    maven = _tool("mvn")
    more = "".join(DEPENDENCY.format(*each) for each in _more_for_java_17(number_of(version)))
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        fetched = Path(scratch) / "libs"
        (Path(scratch) / "pom.xml").write_text(
            POM.format(artifact=artifact, version=version, more=more), encoding="utf-8"
        )
        _run(
            [maven, "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={fetched}"],
            directory=scratch,
            failure=f"Maven could not fetch org.apache.kafka:{artifact}:{version}",
        )
        _put(fetched, folder)
    return folder


def tiered_storage_jar() -> Path:
    """Return the jar with the remote store that Kafka's own tests use, LocalTieredStorage.

    Raises:
        KafkaUnavailableError: It is neither there nor can it be fetched.
    """
    artifact, digest = TIERED_STORAGE
    folder = CACHE / "jars" / f"{artifact}-{VERSION}-test"
    jar = folder / f"{artifact}-{VERSION}-test.jar"
    if not jar.is_file():
        maven = _tool("mvn")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            wanted = f"-Dartifact=org.apache.kafka:{artifact}:{VERSION}:jar:test"
            fetched = Path(scratch) / "libs"
            _run(
                [maven, "-q", "-B", "dependency:copy", wanted, f"-DoutputDirectory={fetched}"],
                directory=scratch,
                failure=f"Maven could not fetch {jar.name}",
            )
            _put(fetched, folder)
    found = hashlib.sha256(jar.read_bytes()).hexdigest()
    if found != digest:
        raise KafkaUnavailableError(f"{jar} has another checksum: {found}, expected {digest}")
    return jar


def _compiled(jars: Path) -> Path:
    """Return the folder with the oracle's classes, compiled against `jars`."""
    sources = sorted(SOURCES.glob("*.java"))
    digest = hashlib.sha256(str(jars.resolve()).encode())
    for source in sources:
        digest.update(source.read_bytes())
    folder = CACHE / "oracle" / digest.hexdigest()[:16]
    if folder.is_dir():
        return folder
    compiler = _tool("javac")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        classes = Path(scratch) / "classes"
        _run(
            [compiler, "-cp", f"{jars}/*", "-d", str(classes), *map(str, sources)],
            directory=scratch,
            failure="javac could not compile the oracle",
        )
        _put(classes, folder)
    return folder


def _run(command: list[str], *, directory: str, failure: str) -> None:
    try:
        ran = subprocess.run(
            command,
            cwd=directory,
            capture_output=True,
            text=True,
            timeout=FETCH_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise KafkaUnavailableError(f"{failure} within {FETCH_TIMEOUT_S} s") from None
    if ran.returncode != 0:
        said = [line for line in f"{ran.stderr}\n{ran.stdout}".splitlines() if line.strip()]
        raise KafkaUnavailableError(f"{failure}: {said[0] if said else 'no reason given'}")


def _put(made: Path, folder: Path) -> None:
    """Move the result to its place, unless another process was faster."""
    try:
        made.rename(folder)
    except OSError:
        if not any(folder.glob("*")):
            raise
