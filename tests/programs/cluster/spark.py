"""A standalone cluster: a master, two workers and a machine that submits jobs, each a host."""

import contextlib
import shutil
import subprocess
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from tests.programs.cluster.hosts import GATEWAY, HOME, REPOSITORY, Host, bridge
from tests.support.s3 import SETTINGS

ENDPOINT = f"http://{GATEWAY}:9000"
CREDENTIALS = SETTINGS | {"AWS_ENDPOINT": ENDPOINT}
MASTER = "spark://10.77.0.2:7077"
START_SECONDS = 180
# Every kill starts new processes, which live too short for the second compiler.
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_DEPLOY = "org.apache.spark.deploy"


class Cluster:
    """The hosts.

    Args:
        directory: Where their disks are.
        archive: The packed environment.
        shared: A directory that all of them mount; None: they share the object store alone.
    """

    def __init__(self, directory: Path, archive: Path, shared: Path | None) -> None:
        self.shared = shared
        names = ("master", "worker-1", "worker-2", "driver")
        hosts = [Host(n, 2 + i, directory / n, shared) for i, n in enumerate(names)]
        self.master, self.workers, self.driver = hosts[0], hosts[1:3], hosts[3]
        self._archive = archive
        self._settings = {"AWS_EC2_METADATA_DISABLED": "true"}
        if shared is None:
            self._settings |= CREDENTIALS

    @contextlib.contextmanager
    def running(self) -> Iterator["Cluster"]:
        """Start it, and switch it off at the end."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(bridge())
            for host in (self.master, *self.workers, self.driver):
                stack.enter_context(host)
            self._install()
            place = ("--host", self.master.address, "--port", "7077", "--webui-port", "0")
            self.master.start(_spark_class("master.Master", *place), "master.log", {})
            _wait_for(self.master, "master.log", "I have been elected leader", 1)
            for worker in self.workers:
                self.start(worker)
            _wait_for(self.master, "master.log", "Registering worker", len(self.workers))
            yield self

    def _install(self) -> None:
        """Copy onto the driver's disk what a user has there: environment, jobs and jars."""
        home = self.driver.directory / "home"
        shutil.copy(self._archive, home / "environment.tar.gz")
        with tarfile.open(self._archive) as packed:
            packed.extractall(home / "environment", filter="tar")
        (home / "jobs").mkdir(exist_ok=True)
        jobs = [*(REPOSITORY / "streaming_jobs").glob("*.py"), _report_job()]
        for path in jobs:
            shutil.copy(path, home / "jobs")
        (home / "jars").mkdir(exist_ok=True)
        for path in (REPOSITORY / ".cache/jars").glob("*/*.jar"):
            if path.parent.name in ("delta", "s3a"):
                shutil.copy(path, home / "jars")

    def start(self, host: Host) -> None:
        """Start a worker, or start it again; it joins the cluster later."""
        work = host.directory / "tmp" / "work"
        if work.exists():
            # The environments of 20,000 files would take up to a minute, in which the job goes on.
            old = work.rename(host.directory / f"work-{time.monotonic_ns()}")
            threading.Thread(target=shutil.rmtree, args=(old, True), daemon=True).start()
        size = ("--cores", "1", "--memory", "1g", "--work-dir", "/tmp/work")
        place = ("--host", host.address, "--webui-port", "0")
        command = _spark_class("worker.Worker", *place, *size, MASTER)
        host.start(command, "worker.log", {})

    def submit(self, job: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Submit a job from the driver's host; its output is in `JOB.log` there."""
        home = self.driver.directory / "home"
        jars = ",".join(f"jars/{path.name}" for path in sorted((home / "jars").iterdir()))
        confs = {
            "spark.driver.host": self.driver.address,
            "spark.driver.bindAddress": self.driver.address,
            "spark.ui.enabled": "false",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "2",
            "spark.databricks.delta.snapshotPartitions": "2",
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.driver.extraJavaOptions": QUICK,
            "spark.executor.extraJavaOptions": QUICK,
            "spark.executorEnv.NUMBA_CACHE_DIR": "./environment/numba",
            **{f"spark.executorEnv.{name}": value for name, value in self._settings.items()},
            "spark.hadoop.fs.s3a.endpoint": ENDPOINT,
            "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
            "spark.hadoop.fs.s3a.path.style.access": "true",
        }
        command = [
            str(HOME / "spark/bin/spark-submit"),
            *("--master", MASTER, "--driver-memory", "1g", "--executor-memory", "700m"),
            *("--archives", "environment.tar.gz#environment", "--jars", jars),
            *(part for name, value in confs.items() for part in ("--conf", f"{name}={value}")),
            *(f"jobs/{job}.py", *arguments),
        ]
        environment = {
            "PYSPARK_PYTHON": "./environment/bin/python",
            "NUMBA_CACHE_DIR": "./environment/numba",
            **self._settings,
        }
        return self.driver.start(command, f"{job}.log", environment)

    def host_at(self, address: str) -> Host | None:
        """Return the worker or driver with an address."""
        hosts = (*self.workers, self.driver)
        return next((host for host in hosts if host.address == address), None)


def _report_job() -> Path:
    return Path(__file__).with_name("table_report.py")


def _spark_class(name: str, *arguments: str) -> list[str]:
    return [str(HOME / "spark/bin/spark-class"), f"{_DEPLOY}.{name}", *arguments]


def _wait_for(host: Host, log: str, text: str, count: int) -> None:
    """Wait until a log has so many lines with `text`."""
    deadline = time.monotonic() + START_SECONDS
    while host.log(log).count(text) < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{host.name}: no {text!r} in {log}:\n{host.log(log)[-3000:]}")
        time.sleep(0.1)
