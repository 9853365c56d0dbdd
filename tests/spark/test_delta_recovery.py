"""Recovery of jobs that write to Delta, tested in a session that is not ours."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.meta.repository import ROOT

pytestmark = pytest.mark.spark

JARS = sorted((ROOT / ".cache" / "jars" / "delta").glob("*.jar"))


@pytest.mark.skipif(not JARS, reason="Delta's jars are not there (.ci/fetch-jars)")
def test_deltas_sink_is_right_and_a_function_that_appends_is_caught(tmp_path):
    shutil.copy(ROOT / "tests" / "support" / "delta_project.py", tmp_path / "test_delta.py")

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "streamlog.testing.plugin", "test_delta.py"],
        cwd=tmp_path,
        env={
            **os.environ,
            "DELTA_JARS": ",".join(map(str, JARS)),
            "PYTHONPATH": str(ROOT),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )

    assert "6 passed" in done.stdout, done.stdout
