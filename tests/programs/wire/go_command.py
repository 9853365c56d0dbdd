"""The go command: that of the machine, or one that pip fetches for its architecture."""

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

from tests.programs.wire.sources import plugins
from tests.programs.wire.suites import CACHE

REQUIREMENTS: Final = Path(__file__).with_name("go-requirements.txt")
_OLDEST: Final = (1, 25)  # that the suites' modules allow
_VERSION: Final = re.compile(r"go version go(\d+)\.(\d+)")


@cache
def go() -> str:
    """Return the path of a go command that is recent enough.

    Raises:
        OSError: The machine has none, and none can be fetched.
    """
    for path in (None, "/usr/local/go/bin"):
        found = shutil.which("go", path=path)
        if found is not None and _is_recent(found):
            return found
    return str(plugins(REQUIREMENTS) / "go" / "bin" / "go")


def _is_recent(command: str) -> bool:
    done = subprocess.run([command, "version"], capture_output=True, text=True, check=False)
    found = _VERSION.match(done.stdout)
    return found is not None and (int(found[1]), int(found[2])) >= _OLDEST


def go_environment() -> dict[str, str]:
    """Return the variables of the go command: modules are cached with the suites."""
    return os.environ | {
        "GOFLAGS": "-mod=readonly -modcacherw",
        "GOMODCACHE": str(CACHE / "go"),
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }
