"""Runs the `streamlog` command in this process or as a real one."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from click.testing import CliRunner

from streamlog.cli.main import run

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-c", "from streamlog.cli.main import main; main()"]


class Ran(NamedTuple):
    """The result of a command."""

    code: int
    out: bytes
    error: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The output, parsed as one JSON object per line."""
        return [json.loads(line) for line in self.out.split(b"\n") if line]


def streamlog(*arguments: object, stdin: bytes = b"", **environment: str) -> Ran:
    """Run the command in this process, without a terminal."""
    runner = CliRunner()
    clean = {"STREAMLOG_PATH": None, **environment}
    with runner.isolation(input=stdin, env=clean) as streams:
        code = run([str(argument) for argument in arguments])
        return Ran(code, streams[0].getvalue(), streams[1].getvalue().decode())


def ok(*arguments: object, stdin: bytes = b"") -> Ran:
    """Run the command and check that it succeeds."""
    ran = streamlog(*arguments, stdin=stdin)
    assert ran.code == 0, ran.error
    return ran


def start(*arguments: object, **options: Any) -> "subprocess.Popen[bytes]":
    """Start the command as a separate process, with all streams piped by default.

    The child gets the default SIGINT handler: in a background job, shells make children ignore it.
    """
    return subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        cwd=ROOT,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        **{
            "env": {**os.environ, "STREAMLOG_PATH": ""},
            "stdin": subprocess.PIPE,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            **options,
        },
    )
