"""Hosts on one machine: each has its own network, home and /tmp, and sees no other's files.

A host is a network namespace with an address on a bridge, and a directory. Every process of a host
runs in a mount namespace in which the host's directory is its home and its /tmp, and the repository
is empty. It finds there what an administrator installs on each machine: Python, Java and Spark.
"""

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]
HOME = Path.home()
GATEWAY = "10.77.0.1"
BRIDGE = "streamlog0"


def missing() -> str | None:
    """Return what this machine lacks to make hosts; None if nothing."""
    if os.geteuid() != 0:
        return "the rights of root"
    for command in ("ip", "unshare"):
        if not any(Path(each, command).exists() for each in ("/usr/bin", "/usr/sbin", "/sbin")):
            return f"the command {command}"
    return None


def spark_home() -> Path:
    """Return the installed Spark."""
    spec = find_spec("pyspark")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent


def _run(*command: str, check: bool = True) -> None:
    subprocess.run(command, check=check, capture_output=not check)


@contextlib.contextmanager
def bridge() -> Iterator[None]:
    """Make the network of all hosts, in which this machine has the address `GATEWAY`."""
    _run("ip", "link", "del", BRIDGE, check=False)
    _run("ip", "link", "add", BRIDGE, "type", "bridge")
    try:
        _run("ip", "address", "add", f"{GATEWAY}/24", "dev", BRIDGE)
        _run("ip", "link", "set", BRIDGE, "up")
        yield
    finally:
        _run("ip", "link", "del", BRIDGE, check=False)


class Host:
    """A machine of the cluster.

    Args:
        name: Its name.
        number: The last part of its address.
        directory: Its disk.
        shared: A directory that all hosts mount as `shared` in their home; None: they share none.

    Attributes:
        address: Its address.
        directory: Its disk, as this machine sees it: `home` and `tmp`.
    """

    def __init__(self, name: str, number: int, directory: Path, shared: Path | None) -> None:
        self.name, self.address = name, f"10.77.0.{number}"
        self._space = f"streamlog-{name}"
        self._shared = shared
        if shared is not None:
            shared.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        for each in ("home/spark", "home/shared", "tmp", "python", "nothing"):
            (directory / each).mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> "Host":
        """Connect it to the network."""
        _run("ip", "netns", "del", self._space, check=False)
        _run("ip", "netns", "add", self._space)
        inside = ("ip", "-n", self._space)
        link = f"sl-{self.name}"[:15]
        _run(
            "ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", self._space
        )
        _run("ip", "link", "set", link, "master", BRIDGE, "up")
        _run(*inside, "address", "add", f"{self.address}/24", "dev", "eth0")
        _run(*inside, "link", "set", "eth0", "up")
        _run(*inside, "link", "set", "lo", "up")
        return self

    def __exit__(self, *_: object) -> None:
        """Switch it off."""
        self.kill()
        _run("ip", "netns", "del", self._space, check=False)

    def start(
        self, command: list[str], log: str, environment: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        """Start a process on it, in its home, its output in a file of its /tmp."""
        settings = {
            "PATH": os.environ["PATH"],
            "HOME": str(HOME),
            "LANG": "C.UTF-8",
            "SPARK_HOME": str(HOME / "spark"),
            "SPARK_LOCAL_IP": self.address,
            "SPARK_NO_DAEMONIZE": "1",
            **({"JAVA_HOME": os.environ["JAVA_HOME"]} if "JAVA_HOME" in os.environ else {}),
            **environment,
        }
        with (self.directory / "tmp" / log).open("ab") as output:
            return subprocess.Popen(
                ["ip", "netns", "exec", self._space, *_in_mounts(self._mounts(), command)],
                env=settings,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _mounts(self) -> list[str]:
        disk, python = self.directory, Path(sys.base_prefix)
        lines = [f"mount --bind {spark_home()} {disk}/home/spark"]
        if self._shared is not None:
            lines.append(f"mount --bind {self._shared} {disk}/home/shared")
        hides_python = python.is_relative_to(HOME)
        if hides_python:
            target = disk / "home" / python.relative_to(HOME)
            lines += [f"mkdir -p {target}", f"mount --bind {python} {target}"]
        lines += [
            f"mount --bind {disk}/nothing {REPOSITORY}",
            f"mount --rbind {disk}/home {HOME}",
            f"mount --bind {disk}/tmp /tmp",
            f"cd {HOME}",
        ]
        return lines

    def log(self, name: str) -> str:
        """Return what a process has printed."""
        return (self.directory / "tmp" / name).read_text(errors="replace")

    def kill(self) -> int:
        """Kill all its processes at once, as if its power failed; return their number."""
        killed: set[int] = set()
        for _ in range(100):
            pids = self._processes()
            if not pids:
                return len(killed)
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            killed |= pids
            time.sleep(0.05)
        raise RuntimeError(f"host {self.name}: processes do not die: {self._processes()}")

    def _processes(self) -> set[int]:
        """Return the living processes of its network, without zombies."""
        listed = subprocess.run(
            ["ip", "netns", "pids", self._space], capture_output=True, text=True, check=False
        )
        return {pid for pid in map(int, listed.stdout.split()) if not _is_dead(pid)}


def _is_dead(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def _in_mounts(mounts: list[str], command: list[str]) -> list[str]:
    script = "\n".join(["set -e", *mounts, f"exec {shlex.join(command)}"])
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]
