"""The pytest plugin and its package: their imports and their fixtures."""

import os
import subprocess
import sys

import pytest

import streamlog.testing
from tests.meta.repository import PACKAGE, ROOT, parse
from tests.meta.test_import_cost import HEAVY, loaded_by
from tests.meta.test_public_names import names_for_type_checkers

TEST_FILE = """
import sys


def test_nothing_is_loaded_before_a_fixture_is_used():
    heavy = {"numpy", "numba", "pyarrow", "pyspark", "pandas"}
    assert heavy & sys.modules.keys() == set()


def test_topic(streamlog_topic, streamlog_root):
    orders = streamlog_topic("orders", ["first"], partitions=2)
    assert orders.root == streamlog_root
    assert orders.values() == ["first"]
    assert "pyspark" not in sys.modules


def test_roots_are_anew_for_each_test(streamlog_topic, checkpoint):
    assert streamlog_topic("orders").values() == []
    assert checkpoint.planned() == []
"""


def test_fixtures_work_in_a_project_without_configuration(tmp_path):
    (tmp_path / "test_it.py").write_text(TEST_FILE)

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "streamlog.testing.plugin", str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout


@pytest.mark.parametrize("module", ["streamlog.testing", "streamlog.testing.plugin"])
def test_the_import_loads_nothing_heavy(module):
    loaded = loaded_by(f"import {module}")

    assert loaded & HEAVY == set()
    ours = {name for name in loaded if name.startswith("streamlog")}
    assert ours == {"streamlog", "streamlog.testing", module}


def test_public_names_agree():
    tree = parse(PACKAGE / "testing" / "__init__.py")

    assert names_for_type_checkers(tree) == set(streamlog.testing.__all__)
    assert set(streamlog.testing._HOME) == set(streamlog.testing.__all__)
    assert set(dir(streamlog.testing)) == set(streamlog.testing.__all__)
    with pytest.raises(AttributeError):
        streamlog.testing.nothing  # noqa: B018 - asking is the test


@pytest.mark.parametrize("name", [*streamlog.testing.__all__])
def test_every_public_name_is_documented_with_an_example(name):
    found = getattr(streamlog.testing, name)
    if name == "CRASH_POINTS":
        assert found == ("offsets", "staged", "decided", "applied", "commits")
    else:
        assert "\n\n        " in found.__doc__ or "\n\n    " in found.__doc__
