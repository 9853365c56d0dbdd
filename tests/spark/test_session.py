"""The first thing a user types: a session, and a format nobody registered."""

import os
import subprocess
import sys

import pytest

from streamlog.spark.spark_session import runs_here

PROGRAM = """
import sys
import streamlog
import streamlog.spark
assert "pyspark" not in sys.modules
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = streamlog.spark.session({session})
{register}
assert spark.conf.get("spark.sql.shuffle.partitions") == {partitions!r}
frame = spark.read.format("{name}").option("path", {path!r}).option("subscribe", "orders").load()
print("rows", frame.count())
"""


def run_without_activation(program, tmp_path, **environment):
    """Run a program by this Python's path only, as where nobody activated its environment."""
    hidden = ("VIRTUAL_ENV", "PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
    kept = {name: value for name, value in os.environ.items() if name not in hidden}
    kept["PATH"] = os.pathsep.join(
        folder
        for folder in os.environ["PATH"].split(os.pathsep)
        if folder != os.path.dirname(sys.executable)
    )
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=kept | environment,
        timeout=300,
        check=False,
    )


@pytest.fixture
def orders(root):
    return root.create("orders", 1).append("orders", 0, ["a", "b", "c"]) and root


@pytest.mark.spark
def test_format_is_found_by_installation_alone_in_an_environment_nobody_activated(orders, tmp_path):
    program = PROGRAM.format(
        session="builder",
        register="",
        partitions=str(len(os.sched_getaffinity(0))),
        name="StreamLog",
        path=orders.path,
    )
    result = run_without_activation(program, tmp_path)
    assert "rows 3" in result.stdout, result.stderr[-3000:]


@pytest.mark.spark
def test_format_is_found_where_the_path_of_python_has_a_space_in_it(orders, tmp_path):
    (tmp_path / "of mine").symlink_to(sys.prefix)
    python = str(tmp_path / "of mine" / "bin" / "python")
    program = PROGRAM.format(
        session="builder",
        register="",
        partitions=str(len(os.sched_getaffinity(0))),
        name="streamlog",
        path=orders.path,
    )
    result = run_without_activation(program, tmp_path, PYSPARK_PYTHON=python)
    assert "rows 3" in result.stdout, result.stderr[-3000:]


@pytest.mark.spark
def test_format_is_registered_by_hand_and_the_builders_settings_stand(orders, tmp_path):
    program = PROGRAM.format(
        session='builder.config("spark.sql.shuffle.partitions", "7")',
        register="streamlog.spark.register(spark)",
        partitions="7",
        name="streamlog",
        path=orders.path,
    )
    result = run_without_activation(program, tmp_path)
    assert "rows 3" in result.stdout, result.stderr[-3000:]


def test_importing_the_source_loads_nothing_heavy():
    program = (
        "import sys, streamlog.spark.source, streamlog.spark.reader\n"
        "heavy = ('numba', 'pyarrow', 'pandas', 'streamlog.records.kernels')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_importing_the_package_of_spark_loads_no_spark():
    program = (
        "import sys, streamlog.spark\n"
        "print(dir(streamlog.spark), 'pyspark' in sys.modules)\n"
        "streamlog.spark.session\n"
        "print('pyspark' in sys.modules)\n"
        "try:\n    streamlog.spark.sessions\nexcept AttributeError as error:\n    print(error)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout.splitlines() == [
        "['append_batch', 'dead_letters', 'export_metrics', 'lag', 'maintain', 'register', "
        "'route_dead_letters', 'session', 'with_dead_letters'] False",
        "False",
        "module 'streamlog.spark' has no attribute 'sessions'",
    ]


@pytest.mark.parametrize(
    ("options", "environment", "expected"),
    [
        ({}, {}, True),
        ({"spark.master": "local[2]"}, {}, True),
        ({"spark.master": "spark://host:7077"}, {}, False),
        ({"spark.remote": "local[2]"}, {}, True),
        ({"spark.remote": "sc://host"}, {}, False),
        ({}, {"SPARK_REMOTE": "sc://host"}, False),
        ({"spark.master": "local"}, {"PYSPARK_GATEWAY_PORT": "1"}, False),
    ],
)
def test_a_server_elsewhere_keeps_its_settings(options, environment, expected):
    assert runs_here(options, environment) is expected
