"""Everything that a change must pass, part by part, with the time of each.

    python -m tests.gate [PART…]

All parts run in the order below, even after a failure. The last line counts the tests.
"""

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
REPORTS = ROOT / ".cache" / "gate"
DEMO = REPORTS / "demo"
TOOLS = Path(sys.executable).parent
AT_ONCE = ("-n", "2", "--dist", "worksteal")
FILES_AT_ONCE = ("-n", "2", "--dist", "loadfile")  # keeps each file's shared fixtures in one worker
# Most JVMs of the tests live for seconds, so optimizing compilation does not pay.
SHORT_LIVED_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class Part(NamedTuple):
    """Commands under one name. The tests of a pytest command are counted."""

    name: str
    commands: tuple[tuple[str, ...], ...]
    jvm_options: str = ""


class Result(NamedTuple):
    """The outcome of a part."""

    name: str
    passed: int
    failed: int
    skipped: int
    is_good: bool
    seconds: float


def tool(name: str, *arguments: str) -> tuple[str, ...]:
    return (str(TOOLS / name), *arguments)


def pytest(*arguments: str) -> tuple[str, ...]:
    return tool("pytest", "-q", *arguments)


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
    Part("engine", (pytest(*AT_ONCE, "-m", "not spark and not compat"),)),
    Part(
        "faults",
        (
            tool("python", "-m", "tests.reliability", "--budget", "ci"),
            tool("python", "-m", "tests.programs.reliability.teeth", "--seconds", "25"),
        ),
    ),
    Part("spark", (pytest(*FILES_AT_ONCE, "-m", "spark and not compat"),), SHORT_LIVED_JVM),
    Part("compat", (pytest(*AT_ONCE, "-m", "compat"),)),
    Part("demo", (tool("python", "-m", "streaming_jobs.demo", "--directory", str(DEMO)),)),
)


def count(report: Path) -> tuple[int, int, int]:
    """Return the numbers of passed, failed (or broken) and skipped tests."""
    passed = failed = skipped = 0
    if report.exists():
        for suite in ElementTree.parse(report).iter("testsuite"):
            total = int(suite.attrib["tests"])
            bad = int(suite.attrib["failures"]) + int(suite.attrib["errors"])
            left_out = int(suite.attrib["skipped"])
            passed, failed, skipped = (
                passed + total - bad - left_out,
                failed + bad,
                skipped + left_out,
            )
    return passed, failed, skipped


def run(part: Part) -> Result:
    """Run all commands of `part`."""
    print(f"\n──── {part.name}", flush=True)
    start = time.monotonic()
    report = REPORTS / f"{part.name}.xml"
    report.unlink(missing_ok=True)
    is_good = True
    environment = os.environ | ({"JDK_JAVA_OPTIONS": part.jvm_options} if part.jvm_options else {})
    for command in part.commands:
        name = Path(command[0]).name
        print(f"$ {shlex.join([name, *command[1:]])}", flush=True)
        extra = (f"--junitxml={report}",) if name == "pytest" else ()
        done = subprocess.run([*command, *extra], cwd=ROOT, env=environment, check=False)
        is_good &= done.returncode == 0
    passed, failed, skipped = count(report)
    return Result(part.name, passed, failed, skipped, is_good, time.monotonic() - start)


def table(results: list[Result]) -> Iterator[str]:
    """Yield a line per part."""
    for result in results:
        verdict = "good" if result.is_good else "FAILED"
        yield (
            f"{result.name:<8} {verdict:<7} {result.seconds:7.1f} s"
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
    results = [run(part) for part in PARTS if not names or part.name in names]
    print("\n" + "\n".join(table(results)))
    is_good = all(result.is_good for result in results)
    failed = sum(result.failed for result in results)
    if failed or any(result.passed for result in results):
        passed, skipped = (sum(r.passed for r in results), sum(r.skipped for r in results))
        print(f"tests: {passed} passed, {failed} failed, {skipped} skipped")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
