"""Build the documentation as a site: `python -m tests.programs.site`, or `make site`.

The tools have an environment of their own, made from `conf/requirements-site.txt`.
"""

import subprocess
import sys

from tests.meta.repository import ROOT
from tests.support.environments import environment


def build() -> subprocess.CompletedProcess[str]:
    """Run `build.py` with the pinned tools; what it prints is in `stdout`."""
    script = ROOT / "tests" / "programs" / "site" / "build.py"
    return subprocess.run(
        [environment("site") / "python", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


if __name__ == "__main__":
    done = build()
    print(done.stdout)
    sys.exit(done.returncode)
