"""A cluster that is killed: `python -m tests.programs.cluster [--only CASES] [--shared]`.

Spark's standalone master, two workers and the machine that submits jobs are hosts of their own,
which share only an object store, or with `--shared` only a directory. The flights go from files
into a topic, and from there into another topic and a Delta table, with a host killed at each case.
In the end each of the 336,776 flights must be there once. Needs root, Linux, Java and the jars of
`.ci/fetch-jars delta s3a`.
"""

import argparse
import sys
import tempfile
import time
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from random import Random

from tests.programs.cluster.demo import (
    BrokenError,
    Demo,
    cases_of,
    object_store,
    shared_directory,
)
from tests.programs.cluster.environment import pack
from tests.programs.cluster.hosts import REPOSITORY, missing
from tests.programs.cluster.spark import Cluster
from tests.programs.cluster.stages import SHARED_STAGES, STAGES, Case
from tests.programs.reliability import scratch


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.programs.cluster", description=__doc__)
    parser.add_argument(
        "--only", default="*", help="cases, separated by commas; * and ? may be in them"
    )
    parser.add_argument("--shared", action="store_true", help="share a directory, no object store")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--keep", type=Path, help="work in this empty directory and keep it")
    arguments = parser.parse_args()
    lack = missing()
    if lack is None and not all(
        list((REPOSITORY / ".cache/jars" / name).glob("*.jar")) for name in ("delta", "s3a")
    ):
        lack = "jars: .ci/fetch-jars delta s3a"
    if lack is not None:
        parser.error(f"this machine lacks {lack}")
    return arguments


def main() -> int:
    """Run once, and print one line a kill."""
    arguments = parse_arguments()
    scratch.end_in_order()
    patterns = arguments.only.split(",")
    stages = SHARED_STAGES if arguments.shared else STAGES
    cases = [
        case
        for case in cases_of(stages)
        if any(fnmatchcase(str(case), pattern) for pattern in patterns)
    ]
    started = time.monotonic()
    print(f"seed {arguments.seed}, {len(cases)} kills", flush=True)
    archive = REPOSITORY / ".cache/cluster/environment.tar.gz"
    archive.parent.mkdir(parents=True, exist_ok=True)
    pack(archive)
    print(f"packed environment: {archive.stat().st_size / 1e6:.0f} MB", flush=True)
    with tempfile.TemporaryDirectory(prefix="streamlog-cluster-") as temporary:
        directory = arguments.keep or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        try:
            run(directory, archive, arguments, cases)
        except BrokenError as error:
            print(f"BROKEN: {error}", flush=True)
            return 1
    print(f"each row exactly once; {time.monotonic() - started:.0f} s", flush=True)
    return 0


def run(directory: Path, archive: Path, arguments: argparse.Namespace, cases: list[Case]) -> None:
    """Run the demo in a directory."""
    shared = directory / "shared" if arguments.shared else None
    store = shared_directory if arguments.shared else object_store
    with (
        Cluster(directory / "hosts", archive, shared).running() as cluster,
        store(directory) as (places, trap),
    ):
        tell = partial(print, flush=True)
        Demo(cluster, places, trap, Random(arguments.seed), tell).run(cases)


if __name__ == "__main__":
    sys.exit(main())
