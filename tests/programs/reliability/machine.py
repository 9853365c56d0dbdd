"""What the figures of a run depend on, and when it was: the first line of all that is recorded."""

import os
import platform
import subprocess
from datetime import datetime, timezone


def facts() -> dict[str, str]:
    """Return the machine, the state of the sources and the time."""
    return {
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "cpus": str(os.cpu_count()),
        "commit": commit(),
        "began": now(),
    }


def commit() -> str:
    """Return which state of the sources this is; a + where it was changed since."""
    command = ["git", "describe", "--always", "--dirty=+"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def now() -> str:
    """Return the time, to the minute."""
    return f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC"
