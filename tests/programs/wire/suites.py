"""Test suites of Kafka clients, run against gateways: fresh roots, outcomes, the kept result.

A suite is a command of its own (`franz_go`, `kafka_python`). Each whole run is kept as JSON in
`.cache/wire`, from which `report_card` generates `streamlog/gateway/CLIENTS.md`.

A suite's table of reasons says why a test of it may fail, or is not run:

    REASONS = {"test_acls": "there are no access control lists", "TestMove/*": "one broker"}

A key is a test's name; `*` at its end stands for any text. The command fails if a test fails
without a reason, and if a reason has become stale: it explains no failure, its tests passed.
"""

import contextlib
import json
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from streamlog import LogManager
from streamlog.gateway import Address, Gateway, GatewaySettings, serve

ROOT: Final = Path(__file__).resolve().parents[3]
CACHE: Final = ROOT / ".cache" / "wire"

PASSED: Final = "passed"
FAILED: Final = "failed"
SKIPPED: Final = "skipped"
OMITTED: Final = "omitted"
"""The command does not run the test; a reason says why."""
RESULTS: Final = (PASSED, FAILED, SKIPPED, OMITTED)

Reasons = Mapping[str, str]
"""Our explanations, by a test's name, or by its beginning and a `*`."""


class Outcome(NamedTuple):
    """The result of one test.

    Args:
        test: The test's name.
        result: One of RESULTS.
        note: The first lines of a failure, or why it was skipped, as the suite reports it.
        reason: Our explanation of why it is not passed.
    """

    test: str
    result: str
    note: str = ""
    reason: str = ""


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

    @property
    def unexplained(self) -> list[Outcome]:
        """The failed and omitted tests without a reason."""
        return [each for each in [*self.of(FAILED), *self.of(OMITTED)] if not each.reason]

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
def fresh_gateway(
    properties: str = "",
    users: str = "",
    *,
    tls: Path | None = None,
    node_id: int | None = None,
    advertise: Address | None = None,
) -> Iterator[Gateway]:
    """Serve a new root on a free port.

    Args:
        properties: Settings of the root, as in `server.properties`.
        users: The users that have to authenticate, as in the file of `--sasl-users`.
        tls: A directory with the certificate `ca.crt` and its key `server.key`; None: no TLS.
        node_id: The broker's id; None: that of every new root, 1.
        advertise: The address that clients are given; None: that of the gateway.
    """
    with tempfile.TemporaryDirectory(prefix="streamlog-wire-") as folder:
        root, passwords = Path(folder, "root"), Path(folder, "users")
        with LogManager.open(root, create=True) as manager:
            settings_file = Path(manager.log_root.server_properties)
        with settings_file.open("a", encoding="utf-8") as file:
            file.write(f"\n{properties}\n")
        if node_id is not None:
            meta = root / "meta.properties"
            text = meta.read_text("utf-8")
            meta.write_text(re.sub("(?m)^node.id=.*", f"node.id={node_id}", text), "utf-8")
        if users:
            passwords.touch(mode=0o600)
            passwords.write_text(users, "utf-8")
        settings = GatewaySettings(
            advertise=advertise,
            sasl_users=str(passwords) if users else None,
            tls_cert=str(tls / "ca.crt") if tls else None,
            tls_key=str(tls / "server.key") if tls else None,
        )
        with serve(root, settings) as gateway:
            yield gateway


def run_suite(
    suite: str,
    module: str,
    run: Callable[[], tuple[int, list[Outcome]]],
    *,
    is_whole: bool,
    reasons: Reasons | None = None,
) -> int:
    """Run a suite, print its outcomes, and return the exit code for its command.

    Args:
        suite: The suite's name and version.
        module: The command's module.
        run: Runs it; returns the exit code of its runner (0 or 1 if it ran), and the outcomes.
        is_whole: Whether it ran with the default arguments, so that the result is kept.
        reasons: Why tests may fail, and why tests are omitted.
    """
    known = reasons or {}
    date, start = time.strftime("%Y-%m-%d", time.gmtime()), time.monotonic()
    exit_code, found = run()
    seconds = time.monotonic() - start
    here = f"{ROOT}/"  # says nothing to other readers
    told = [outcome._replace(note=outcome.note.replace(here, "")) for outcome in found]
    outcomes = explained(told, known)
    done = Run(suite, f"python -m {module}", date, seconds, exit_code, outcomes)
    for outcome in outcomes:
        note = "".join(f": {text}" for text in (outcome.note, outcome.reason) if text)
        print(f"{outcome.result:<8} {outcome.test}{note}")
    counts = ", ".join(f"{len(done.of(result))} {result}" for result in RESULTS)
    print(f"{suite}: {counts} in {seconds:.0f} s, exit code {exit_code}")
    if is_whole:
        done.save()
    complaints = list(_complaints(done, stale_reasons(outcomes, known, is_whole=is_whole)))
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    return 1 if complaints else 0


def explained(outcomes: Sequence[Outcome], reasons: Reasons) -> list[Outcome]:
    """Return the outcomes with the reasons of those that did not pass."""
    return [
        outcome if outcome.result == PASSED else outcome._replace(reason=_reason(outcome, reasons))
        for outcome in outcomes
    ]


def stale_reasons(outcomes: Sequence[Outcome], reasons: Reasons, *, is_whole: bool) -> list[str]:
    """Return the keys that explain nothing: their tests passed, or do not exist.

    Args:
        outcomes: The tests that ran.
        reasons: The table of reasons.
        is_whole: Whether all tests ran; else a key without a test may be of one that did not.
    """
    stale = []
    for key in reasons:
        results = {outcome.result for outcome in outcomes if _matches(key, outcome.test)}
        if results == {PASSED} or (is_whole and not results):
            stale.append(key)
    return stale


def _complaints(run: Run, stale: Sequence[str]) -> Iterator[str]:
    """Yield what makes a run a failure."""
    if not run.of(PASSED):
        yield "no test passed"
    if run.exit_code not in (0, 1) or (run.exit_code == 1 and not run.of(FAILED)):
        yield f"the suite's runner broke off with exit code {run.exit_code}"
    for outcome in run.unexplained:
        yield f"{outcome.result} without a reason: {outcome.test}"
    for key in stale:
        yield f"stale reason, nothing fails: {key}"


def _reason(outcome: Outcome, reasons: Reasons) -> str:
    """Return the reason of the longest key that matches."""
    keys = [key for key in reasons if _matches(key, outcome.test)]
    return reasons[max(keys, key=len)] if keys else ""


def _matches(key: str, test: str) -> bool:
    return test.startswith(key[:-1]) if key.endswith("*") else test == key
