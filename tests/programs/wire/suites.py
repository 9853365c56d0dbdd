"""Test suites of Kafka clients, run against gateways: fresh roots, outcomes, the kept result.

A suite is a command of its own (`franz_go`, `kafka_python`). Each whole run is kept as JSON in
`.cache/wire`, from which `report_card` generates `streamlog/gateway/CLIENTS.md`.
"""

import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from streamlog import LogManager
from streamlog.gateway import Gateway, GatewaySettings, serve

ROOT: Final = Path(__file__).resolve().parents[3]
CACHE: Final = ROOT / ".cache" / "wire"

PASSED: Final = "passed"
FAILED: Final = "failed"
SKIPPED: Final = "skipped"
RESULTS: Final = (PASSED, FAILED, SKIPPED)


class Outcome(NamedTuple):
    """The result of one test; `note` has the first lines of a failure, or why it was skipped."""

    test: str
    result: str
    note: str = ""


class Run(NamedTuple):
    """One run of a suite."""

    suite: str
    command: str
    date: str
    seconds: float
    exit_code: int
    outcomes: list[Outcome]

    def of(self, result: str) -> list[Outcome]:
        """Return the outcomes with a result."""
        return [outcome for outcome in self.outcomes if outcome.result == result]

    def save(self) -> None:
        """Keep this run as the latest of its suite."""
        CACHE.mkdir(parents=True, exist_ok=True)
        path = CACHE / f"{self.command.rsplit('.', 1)[1]}.json"
        path.write_text(json.dumps(self._asdict(), indent=1), "utf-8")

    @classmethod
    def load(cls, path: Path) -> "Run":
        """Return a kept run."""
        fields = json.loads(path.read_text("utf-8"))
        return cls(**fields | {"outcomes": [Outcome(*each) for each in fields["outcomes"]]})


@contextlib.contextmanager
def fresh_gateway(properties: str = "", users: str = "") -> Iterator[Gateway]:
    """Serve a new root on a free port.

    Args:
        properties: Settings of the root, as in `server.properties`.
        users: The users that have to authenticate, as in the file of `--sasl-users`.
    """
    with tempfile.TemporaryDirectory(prefix="streamlog-wire-") as folder:
        root, passwords = Path(folder, "root"), Path(folder, "users")
        with LogManager.open(root, create=True) as manager:
            settings_file = Path(manager.log_root.server_properties)
        with settings_file.open("a", encoding="utf-8") as file:
            file.write(f"\n{properties}\n")
        if users:
            passwords.touch(mode=0o600)
            passwords.write_text(users, "utf-8")
        with serve(root, GatewaySettings(sasl_users=str(passwords) if users else None)) as gateway:
            yield gateway


def run_suite(
    suite: str, module: str, run: Callable[[], tuple[int, list[Outcome]]], *, is_whole: bool
) -> int:
    """Run a suite, print its outcomes, and return the exit code for its command.

    Args:
        suite: The suite's name and version.
        module: The command's module.
        run: Runs it; returns the exit code of its runner, and the outcomes.
        is_whole: Whether it ran with the default arguments, so that the result is kept.
    """
    date, start = time.strftime("%Y-%m-%d", time.gmtime()), time.monotonic()
    exit_code, outcomes = run()
    seconds = time.monotonic() - start
    done = Run(suite, f"python -m {module}", date, seconds, exit_code, outcomes)
    for outcome in outcomes:
        note = f": {outcome.note}" if outcome.note else ""
        print(f"{outcome.result:<8}{outcome.test}{note}")
    counts = ", ".join(f"{len(done.of(result))} {result}" for result in RESULTS)
    print(f"{suite}: {counts} in {seconds:.0f} s, exit code {exit_code}")
    if is_whole:
        done.save()
    if not outcomes:
        print("no test ran", file=sys.stderr)
    return 1 if exit_code or not done.of(PASSED) else 0
