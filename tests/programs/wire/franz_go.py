"""Run the tests of franz-go's client, `pkg/kgo`, against a gateway.

    python -m tests.programs.wire.franz_go [--run PATTERN] [--records N]

Go fetches the version that `franz-go/go.mod` names, with the checksums of `go.sum`, into `.cache`.
The suite gets two gateways on fresh roots: one without authentication, one with SCRAM. Prints one
line per test and subtest. The exit code is 0 if all passed or were skipped.
"""

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from tests.programs.wire.go_command import go, go_environment
from tests.programs.wire.suites import Outcome, fresh_gateway, run_suite

MODULE: Final = Path(__file__).with_name("franz-go")
PACKAGE: Final = "github.com/twmb/franz-go/pkg/kgo"
SUITE: Final = "franz-go v1.21.5 pkg/kgo"
RECORDS: Final = 20_000
TIMEOUT_S: Final = 900
AT_ONCE: Final = 4
_NOTE_LENGTH: Final = 300
_RESULTS: Final = {"pass": "passed", "fail": "failed", "skip": "skipped"}
_LOGGED: Final = re.compile(r"\w+_test\.go:\d+: (.*)")


def fetch() -> None:
    """Fetch the suite and what it needs, so that it can run without the network.

    Raises:
        OSError: They cannot be fetched.
    """
    command = [go(), "mod", "download"]
    done = subprocess.run(
        command, cwd=MODULE, env=go_environment(), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")


def run(pattern: str, records: int) -> tuple[int, list[Outcome]]:
    """Run the tests that a pattern selects; return go's exit code, and the outcomes."""
    with fresh_gateway() as gateway, fresh_gateway(users="alice:a secret\n") as guarded:
        environment = go_environment() | {
            "KGO_LOG_LEVEL": "none",
            "KGO_SEEDS": gateway.bootstrap_servers,
            "KGO_TEST_RF": "1",
            "KGO_TEST_RECORDS": str(records),
            "KGO_TEST_SCRAM": "alice:a secret:512",
            "KGO_TEST_SCRAM_SEEDS": guarded.bootstrap_servers,
        }
        limits = (f"-timeout={TIMEOUT_S}s", f"-parallel={AT_ONCE}", f"-run={pattern}")
        done = subprocess.run(
            [go(), "test", "-vet=off", "-json", "-count=1", *limits, PACKAGE],
            cwd=MODULE,
            env=environment,
            stdout=subprocess.PIPE,
            encoding="utf-8",
            check=False,
        )
    return done.returncode, list(outcomes(done.stdout.splitlines()))


def outcomes(lines: Iterable[str]) -> Iterator[Outcome]:
    """Yield the outcomes in the output of `go test -json`, in the order in which tests ended."""
    logged: dict[str, list[str]] = {}
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            print(line, file=sys.stderr)  # what the compiler or the linker prints
            continue
        action, test = event.get("Action"), event.get("Test", "")
        if action == "output":
            logged.setdefault(test, []).append(event["Output"])
        elif action == "build-output":
            print(event["Output"], end="", file=sys.stderr)
        elif action in _RESULTS and test:
            passed = action == "pass"
            text = "".join(logged.pop(test, []))
            yield Outcome(test, _RESULTS[action], "" if passed else _note(text))


def _note(text: str) -> str:
    """Return what a test logged itself, on one line."""
    found: list[str] = _LOGGED.findall(text)
    return "; ".join(found)[:_NOTE_LENGTH]


def main() -> int:
    """Run the suite."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", default="", help="only tests that match, as in go test -run")
    parser.add_argument("--records", type=int, default=RECORDS, help="records of the long tests")
    given = parser.parse_args()
    is_whole = not given.run and given.records == RECORDS
    module = "tests.programs.wire.franz_go"
    return run_suite(SUITE, module, lambda: run(given.run, given.records), is_whole=is_whole)


if __name__ == "__main__":
    sys.exit(main())
