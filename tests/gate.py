"""Everything that a change must pass, part by part, with the time of each.

    python -m tests.gate [PART…]

All parts run, even after a failure, three at a time: a part that waits, for a JVM or a time limit,
leaves the processors to the others. The output of a part appears when it ends, that of a single
part at once. What failed is shown again at the end; the last line counts the tests.

A few tests that failed run once more when nothing else does: some limits are not the tests' own
(Spark gives a Python worker ten seconds to start), and a machine that stalls exceeds them. A test
that passes then is counted apart, with its failure shown; one that fails again has failed.
"""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import IO, NamedTuple
from xml.etree import ElementTree

from tests.support import class_data

ROOT = Path(__file__).resolve().parent.parent
REPORTS = ROOT / ".cache" / "gate"
DEMO = REPORTS / "demo"
TOOLS = Path(sys.executable).parent
PARTS_AT_ONCE = 3
MOST_AGAIN = 10  # failed tests of a part that run again; more of them are not the machine's fault
SHOWN = 3_000  # characters of a failure at each of its ends
AT_ONCE = ("-n", "2", "--dist", "worksteal")
FILES_AT_ONCE = ("-n", "2", "--dist", "loadfile")  # keeps each file's shared fixtures in one worker
# Most JVMs of the tests live for seconds, so optimizing compilation does not pay.
SHORT_LIVED_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class Part(NamedTuple):
    """Commands under one name. The tests of a pytest command are counted."""

    name: str
    commands: tuple[tuple[str, ...], ...]
    starts_spark: bool = False


class Result(NamedTuple):
    """The outcome of a part, with its time and that of the processors.

    `unsteady` tests failed beside other parts and passed alone; they are among those that passed.
    """

    part: Part
    passed: int
    failed: int
    skipped: int
    broken: tuple[tuple[str, ...], ...]
    seconds: float
    cpu_seconds: float
    unsteady: int = 0

    @property
    def is_good(self) -> bool:
        """Whether each command succeeded."""
        return not self.broken


def tool(name: str, *arguments: str) -> tuple[str, ...]:
    return (str(TOOLS / name), *arguments)


def pytest(*arguments: str) -> tuple[str, ...]:
    return tool("pytest", "-q", *arguments)


def marked(mark: str, expression: str = "") -> tuple[str, ...]:
    """Return the arguments that select tests with a mark, from the files that name it.

    Collecting takes longer than it seems: pytest imports each file in each worker.
    """
    paths = sorted((ROOT / "tests").rglob("test_*.py"))
    named = [path for path in paths if f"mark.{mark}" in path.read_text(encoding="utf-8")]
    return ("-m", expression or mark, *(str(path.relative_to(ROOT)) for path in named))


# The longest first, so that none of them is left over for the end.
PARTS = (
    Part(
        "lint",
        (
            tool("ruff", "check", "--quiet", "."),
            tool("ruff", "format", "--check", "--quiet", "."),
            tool("mypy"),
            tool("lint-imports"),
        ),
    ),
    Part(
        "spark",
        (
            tool("python", "-m", "tests.support.class_data"),
            pytest(*FILES_AT_ONCE, *marked("spark", "spark and not compat")),
        ),
        starts_spark=True,
    ),
    Part("engine", (pytest(*AT_ONCE, "-m", "not spark and not compat"),)),
    Part("compat", (pytest(*AT_ONCE, *marked("compat")),)),
    Part(
        "faults",
        (
            tool("python", "-m", "tests.reliability", "--budget", "ci"),
            # A third of the seeded bugs; all of them take ten minutes.
            tool(
                "python",
                "-m",
                "tests.programs.reliability.teeth",
                "--every",
                "3",
                "--seconds",
                "25",
            ),
        ),
        starts_spark=True,
    ),
    Part(
        "demo",
        (tool("python", "-m", "streaming_jobs.demo", "--directory", str(DEMO)),),
        starts_spark=True,
    ),
)


def read_report(report: Path) -> ElementTree.Element:
    """Return what pytest says of each test: nothing if it ran none.

    Raises:
        ElementTree.ParseError: The report is cut off, as on a full disk.
    """
    return ElementTree.parse(report).getroot() if report.exists() else ElementTree.Element("none")


def count(report: Path) -> tuple[int, int, int]:
    """Return the numbers of passed, failed (or broken) and skipped tests."""
    passed = failed = skipped = 0
    for suite in read_report(report).iter("testsuite"):
        total = int(suite.attrib["tests"])
        bad = int(suite.attrib["failures"]) + int(suite.attrib["errors"])
        left_out = int(suite.attrib["skipped"])
        passed, failed, skipped = (
            passed + total - bad - left_out,
            failed + bad,
            skipped + left_out,
        )
    return passed, failed, skipped


def failures(report: Path) -> Iterator[str]:
    """Yield each failed test with its message, in full up to a limit."""
    try:
        cases = list(read_report(report).iter("testcase"))
    except ElementTree.ParseError as error:
        yield f"FAILED {report.name} cannot be read: {error}; {free_space()}"
        return
    for case in cases:
        for outcome in (*case.iter("failure"), *case.iter("error")):
            text = (outcome.text or "").strip()
            if len(text) > 2 * SHOWN:
                text = f"{text[:SHOWN]}\n…\n{text[-SHOWN:]}"
            yield f"FAILED {case.get('classname')}.{case.get('name')}\n{text}"


def free_space() -> str:
    """Return how much room is left for the reports, and for temporary files."""
    places = (REPORTS, Path(tempfile.gettempdir()))
    return ", ".join(
        f"{shutil.disk_usage(place).free >> 20} MiB free in {place}" for place in places
    )


def environment_of(part: Part) -> dict[str, str]:
    """Return the variables for the next command of a part; an earlier one may make an archive."""
    if not part.starts_spark:
        return {**os.environ}
    return os.environ | {"JDK_JAVA_OPTIONS": f"{SHORT_LIVED_JVM} {class_data.options()}"}


def run(part: Part, output: IO[bytes] | None = None) -> Result:
    """Run all commands of `part`; what they print goes to `output` if there is one."""
    start = time.monotonic()
    report = report_of(part.name)
    report.unlink(missing_ok=True)
    shutil.rmtree(cache_of(part), ignore_errors=True)
    broken, cpu_seconds = [], 0.0
    for command in part.commands:
        say(f"$ {shlex.join([Path(command[0]).name, *command[1:]])}", output)
        extra = memory(part, report) if is_pytest(command) else ()
        process = subprocess.Popen(
            [*command, *extra], cwd=ROOT, env=environment_of(part), stdout=output, stderr=output
        )
        _, status, used = os.wait4(process.pid, 0)  # instead of wait(): it reports what was used
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            broken.append(command)
        cpu_seconds += used.ru_utime + used.ru_stime
    try:
        passed, failed, skipped = count(report)
    except ElementTree.ParseError:  # `failures` reports it, after all parts have ended
        passed, failed, skipped = 0, 1, 0
        broken.append(("read", str(report)))
    seconds = time.monotonic() - start
    return Result(part, passed, failed, skipped, tuple(broken), seconds, cpu_seconds)


def run_again(result: Result) -> Result:
    """Run the tests of a part that failed once more, alone and in one process."""
    commands = [command for command in result.broken if is_pytest(command)]
    if len(commands) != len(result.broken) or not 0 < result.failed <= MOST_AGAIN:
        return result
    report = report_of(f"{result.part.name}-again")
    report.unlink(missing_ok=True)
    alone = ("-n", "0", "--last-failed", "--last-failed-no-failures=none")
    print(f"\n──── {result.part.name}: {result.failed} failed, again alone", flush=True)
    for command in commands:
        again = [*command, *memory(result.part, report), *alone]
        subprocess.run(again, cwd=ROOT, env=environment_of(result.part), check=False)
    try:
        passed, failed, skipped = count(report)
    except ElementTree.ParseError:
        return result
    if (passed, failed, skipped) != (result.failed, 0, 0):
        return result
    return result._replace(passed=result.passed + passed, failed=0, unsteady=passed, broken=())


def run_all(parts: list[Part]) -> Iterator[Result]:
    """Run parts three at a time, and print the output of each when it ends."""
    if len(parts) == 1:
        yield run(parts[0])
        return
    with ThreadPoolExecutor(PARTS_AT_ONCE) as pool:
        running = {pool.submit(run_aside, part): part for part in parts}
        for done in as_completed(running):
            print(f"\n──── {running[done].name}", flush=True)
            sys.stdout.buffer.write(log_of(running[done]).read_bytes())
            sys.stdout.flush()
            yield done.result()


def run_aside(part: Part) -> Result:
    """Run a part whose output is kept in a file."""
    say(f"{part.name} starts")
    with log_of(part).open("wb") as output:
        return run(part, output)


def report_of(name: str) -> Path:
    """Return the place of the report in which pytest describes each test of a part."""
    return REPORTS / f"{name}.xml"


def is_pytest(command: tuple[str, ...]) -> bool:
    return Path(command[0]).name == "pytest"


def memory(part: Part, report: Path) -> tuple[str, ...]:
    """Return pytest's arguments that make it describe each test, and remember what failed."""
    return (f"--junitxml={report}", "-o", f"cache_dir={cache_of(part)}")


def cache_of(part: Part) -> Path:
    """Return the place where pytest remembers what failed; parts that run at once share none."""
    return REPORTS / f"{part.name}.cache"


def log_of(part: Part) -> Path:
    return REPORTS / f"{part.name}.log"


def say(text: str, output: IO[bytes] | None = None) -> None:
    stream = output or sys.stdout.buffer
    stream.write(f"{text}\n".encode())
    stream.flush()


def table(results: list[Result]) -> Iterator[str]:
    """Yield a line per part."""
    for result in results:
        verdict = "good" if result.is_good else "FAILED"
        yield (
            f"{result.part.name:<8} {verdict:<7} {result.seconds:7.1f} s"
            f" {result.cpu_seconds:7.1f} s cpu"
            f" {result.passed:6} passed {result.failed:4} failed {result.skipped:4} skipped"
        )


def main(names: list[str]) -> int:
    """Run the named parts, or all; return the exit code."""
    unknown = set(names) - {part.name for part in PARTS}
    if unknown:
        known = ", ".join(part.name for part in PARTS)
        print(f"unknown part: {', '.join(sorted(unknown))}; expected {known}", file=sys.stderr)
        return 2
    REPORTS.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    results = list(run_all([part for part in PARTS if not names or part.name in names]))
    results = [run_again(result) for result in results]
    for result in results:
        for failure in failures(report_of(result.part.name)):
            print(f"\n{'PASSED ALONE, ' if result.unsteady else ''}{failure}")
    print("\n" + "\n".join(table(results)))
    print(f"all {time.monotonic() - start:19.1f} s")
    is_good = all(result.is_good for result in results)
    failed = sum(result.failed for result in results)
    if failed or any(result.passed for result in results):
        passed, skipped = (sum(r.passed for r in results), sum(r.skipped for r in results))
        unsteady = sum(result.unsteady for result in results)
        alone = f" ({unsteady} only when run alone)" if unsteady else ""
        print(f"tests: {passed} passed{alone}, {failed} failed, {skipped} skipped")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
