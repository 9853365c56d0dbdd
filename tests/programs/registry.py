"""`python -m tests.programs.registry [--url URL]`: the tests of registries against a real one.

Without a URL it fetches Apicurio Registry with Maven into .cache/apicurio, 142 MB, and starts it.
That one answers Confluent's requests below /apis/ccompat/v7. Needs Java and Maven, and the network
once.
"""

import argparse
import hashlib
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.meta.repository import ROOT
from tests.support.schema_registry import REAL

VERSION = "2.6.13.Final"
SHA256 = "d88014c1addff1fc585e1e9510fc41276473726340f4e0997353b46342d3532b"
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
CACHE = ROOT / ".cache" / "apicurio"
API = "/apis/ccompat/v7"
START_S = 120
TESTS = [f"tests/decoding/test_{name}.py" for name in ("registry", "json_schema")]


def main() -> int:
    """Run the tests; return pytest's exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.programs.registry", description=__doc__)
    parser.add_argument("--url", help="a registry that runs already, with its path if it has one")
    given = parser.parse_args().url
    if given:
        return run_tests(given)
    with apicurio() as url:
        return run_tests(url)


def run_tests(url: str) -> int:
    command = [sys.executable, "-m", "pytest", "-q", *TESTS]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, REAL: url}, check=False).returncode


@contextmanager
def apicurio() -> Iterator[str]:
    """Start Apicurio Registry with its schemas in memory; yield its URL."""
    home = fetch()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = [f"-Dquarkus.http.port={port}", "-Dquarkus.http.host=127.0.0.1"]
    command = ["java", "-Xmx512m", *settings, "-jar", f"apicurio-registry-app-{VERSION}-runner.jar"]
    with (CACHE / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=home, stdout=log, stderr=log)
    try:
        url = f"http://127.0.0.1:{port}{API}"
        wait_for(f"{url}/subjects", process)
        yield url
    finally:
        process.terminate()
        process.wait()


def fetch() -> Path:
    """Return the directory of the unpacked registry."""
    name = f"apicurio-registry-app-{VERSION}-all.zip"
    archive = CACHE / name
    if not archive.exists():
        artifact = f"io.apicurio:apicurio-registry-app:{VERSION}:zip:all"
        options = [f"-Dartifact={artifact}", f"-DoutputDirectory={CACHE}"]
        subprocess.run(["mvn", "-q", "-B", PLUGIN, *options], check=True)
    if hashlib.sha256(archive.read_bytes()).hexdigest() != SHA256:
        raise SystemExit(f"{archive} is not what is pinned: remove it and try again")
    home = CACHE / VERSION
    if not home.exists():
        with zipfile.ZipFile(archive) as content:
            content.extractall(home)
    return home


def wait_for(url: str, process: "subprocess.Popen[bytes]") -> None:
    """Wait until the registry answers."""
    end = time.monotonic() + START_S
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise SystemExit(f"the registry did not start: {CACHE / 'log'}")


if __name__ == "__main__":
    raise SystemExit(main())
