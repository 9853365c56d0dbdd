"""Spark's short-lived processes work without compiled code, which takes longer to load."""

import subprocess
import sys
from pathlib import Path

from streamlog.clock import SystemClock
from streamlog.fs.local import LocalFileSystem
from tests.support.commits import APP, Scene

COMMIT = """
import sys
from streamlog.commits.identity import CommitIdentity
from streamlog.root.manager import LogManager
from streamlog.commits.staging import StagedExtent, StagedFile

root, app, name, size, *extents = sys.argv[1:]
extents = tuple(StagedExtent(*map(eval, each.split(";"))) for each in extents)
rows = sum(each.records for each in extents)
manager = LogManager.open(root)
outcome = manager.commits.commit(
    CommitIdentity(app, 1), [StagedFile(app, 1, 0, name, int(size), extents, rows, 0)]
)
print(outcome.rows, sorted({"numba", "pandas", "pyarrow", "pyspark"} & set(sys.modules)))
"""

FOLLOW = """
import sys
from streamlog.partition.reader import LogReader

reader = LogReader.open(sys.argv[1])
end = reader.log_end_offset
reader.refresh()
print(end, reader.size_between(3, end) > 0, "numba" in sys.modules)
"""


def run(code: str, *arguments: str) -> str:
    """Return the output of a process that runs `code`."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_a_commit_of_a_few_batches_compiles_nothing(tmp_path: Path) -> None:
    scene = Scene(LocalFileSystem(), clock=SystemClock(), root=str(tmp_path))
    scene.commit(0)
    staged = scene.stage(1)
    scene.manager.close()
    extents = [";".join(map(repr, extent)) for extent in staged.extents]
    arguments = [str(tmp_path), APP, staged.name, str(staged.size), *extents]
    assert run(COMMIT, *arguments) == "12 []"
    assert len(scene.values(0)) == 12


def test_following_a_log_compiles_nothing(tmp_path: Path) -> None:
    scene = Scene(LocalFileSystem(), clock=SystemClock(), root=str(tmp_path))
    scene.commit(0)
    scene.append(0, *[b"row"] * 100)
    scene.manager.close()
    assert run(FOLLOW, f"{tmp_path}/t-0") == "106 True False"
