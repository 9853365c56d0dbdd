"""Spark's classes as the JVM keeps them in memory, in an archive that all JVMs of the tests map.

    python -m tests.support.class_data

Half of the processor time of a JVM that runs one small query goes into loading and verifying
thousands of classes. A job that does what the tests do is run once, and the JVM saves its classes
at its end. A JVM with other jars, or of another version, passes over the archive by itself.
"""

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Final

# Warnings would go to the output, which Spark's launcher reads: other JVMs say that they pass over.
_QUIET: Final = "-Xlog:disable -Xlog:all=error:stderr"


_CACHE: Final = Path(__file__).resolve().parents[2] / ".cache" / "class-data"


def archive() -> Path:
    """Return the place of the archive for this Java and this Spark."""
    both = f"{os.path.realpath(shutil.which('java') or 'java')} {version('pyspark')}"
    return _CACHE / f"spark-{hashlib.sha256(both.encode()).hexdigest()[:16]}.jsa"


def options() -> str:
    """Return the JVM options that map the archive; none if there is none."""
    return f'"-XX:SharedArchiveFile={archive()}" {_QUIET}' if archive().exists() else ""


def make(archive: Path) -> None:
    """Run the job, and keep the classes of its JVM, unless that was done."""
    if archive.exists():
        return
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent) as scratch:
        made = Path(scratch, "classes")
        # Not by the environment: the JVM that composes Spark's command would write an archive, too.
        archives = shlex.quote(f'"-XX:ArchiveClassesAtExit={made}" {_QUIET}')
        submit = f"--driver-java-options {archives} pyspark-shell"
        subprocess.run(
            [sys.executable, "-m", __spec__.name, "--run", scratch],
            env=os.environ | {"PYSPARK_SUBMIT_ARGS": submit},
            check=True,
        )
        if made.exists():
            made.rename(archive)
        else:
            print("this JVM keeps no archive of classes: Spark will start without", file=sys.stderr)


def run(scratch: Path) -> None:
    """Read and write as the tests do: streams through both sinks, a batch, SQL."""
    from streamlog.records.record import Record
    from streamlog.root.manager import LogManager
    from tests.support.killing_job import copy
    from tests.support.spark_session import open_session

    root = str(scratch / "root")
    with LogManager.open(root, create=True) as manager:
        for topic in ("in", "out"):
            manager.create_topic(topic, 1)
        manager.log("in", 0).append([Record(b"k", b"%d" % number) for number in range(4)])
    spark = open_session(scratch)
    for name, by_function in (("writer", False), ("function", True)):
        copy(spark, root, str(scratch / name), by_function=by_function)
    frame = spark.read.format("streamlog").option("path", root).option("subscribe", "out").load()
    frame.createOrReplaceTempView("out")
    counted = spark.sql("SELECT key, count(*) AS n FROM out GROUP BY key ORDER BY n").collect()
    assert [row.n for row in counted] == [8], counted
    gateway = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()  # it writes the archive at its end


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        run(Path(sys.argv[2]))
    else:
        make(archive())
