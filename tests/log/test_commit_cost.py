"""What a commit costs that is the first one of its process, as many of Spark's are."""

import subprocess
import sys
from pathlib import Path

from streamlog.clock import SystemClock
from streamlog.fs.local import LocalFileSystem
from tests.support.commits import APP, Scene

COMMIT = """
import sys
from streamlog.log.identity import CommitIdentity
from streamlog.log.manager import LogManager
from streamlog.log.staging import StagedExtent, StagedFile

root, app, name, size, *extents = sys.argv[1:]
extents = tuple(StagedExtent(*map(eval, each.split(";"))) for each in extents)
rows = sum(each.records for each in extents)
manager = LogManager.open(root)
outcome = manager.commits.commit(
    CommitIdentity(app, 1), [StagedFile(app, 1, 0, name, int(size), extents, rows, 0)]
)
print(outcome.rows, sorted({"numba", "pandas", "pyarrow", "pyspark"} & set(sys.modules)))
"""


def test_a_commit_of_a_few_batches_compiles_nothing(tmp_path: Path) -> None:
    scene = Scene(LocalFileSystem(), clock=SystemClock(), root=str(tmp_path))
    scene.commit(0)
    staged = scene.stage(1)
    scene.manager.close()
    extents = [";".join(map(repr, extent)) for extent in staged.extents]
    arguments = [str(tmp_path), APP, staged.name, str(staged.size), *extents]
    done = subprocess.run(
        [sys.executable, "-c", COMMIT, *arguments], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["12 []"]
    assert len(scene.values(0)) == 12
