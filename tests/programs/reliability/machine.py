"""The circumstances of a run: machine, commit and time, the first line of each output file."""

import os
import platform
import subprocess
from datetime import datetime, timezone


def facts() -> dict[str, str]:
    return {
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "cpus": str(os.cpu_count()),
        "commit": commit(),
        "began": now(),
    }


def commit() -> str:
    """Return `git describe` of the sources; `+` marks uncommitted changes."""
    command = ["git", "describe", "--always", "--dirty=+"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def now() -> str:
    """Return the time in UTC, to the minute."""
    return f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC"
