"""Spark's Declarative Pipelines: the example runs, and runs again from where it stopped."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import streamlog
from tests.meta.repository import ROOT

EXAMPLE = ROOT / "examples" / "pipeline"
MOVED = "/tmp/streamlog-pipeline"


def run_pipeline(project: Path) -> str:
    programs = Path(sys.executable).parent
    done = subprocess.run(
        # Without a metastore, the next run would not know the tables of this one.
        [programs / "spark-pipelines", "run", "--conf", "spark.sql.catalogImplementation=hive"],
        cwd=project,
        # A port of its own; and a process that lives so briefly is faster without optimization.
        env=os.environ
        | {
            "SPARK_TESTING": "1",
            "PYSPARK_PYTHON": sys.executable,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout


def append(root: str, *rows: tuple[str, str]) -> None:
    keys, values = zip(*rows, strict=True)
    streamlog.write_table(pa.table({"key": list(keys), "value": list(values)}), root, "visits")


def carts(root: str) -> list[str]:
    return sorted(key.decode() for key in streamlog.read_table(root, "carts")["key"].to_pylist())


@pytest.mark.spark
@pytest.mark.slow
def test_the_example_runs_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    project = tmp_path / "pipeline"
    shutil.copytree(EXAMPLE, project)
    spec = project / "spark-pipeline.yml"
    spec.write_text(spec.read_text().replace(MOVED, str(tmp_path)))
    root = str(tmp_path / "root")
    with streamlog.LogManager.open(root, create=True) as manager:
        manager.create_topic("visits", 2)
        manager.create_topic("carts")

    append(root, ("ann", "/home"), ("bob", "/cart"))
    run_pipeline(project)
    assert carts(root) == ["bob"]

    append(root, ("cem", "/cart"))
    run_pipeline(project)
    assert carts(root) == ["bob", "cem"]  # nothing again, nothing lost
