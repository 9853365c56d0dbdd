"""Azurite, Microsoft's emulator of Azure Blob Storage, as a server of its own for tests."""

import base64
import contextlib
import email.utils
import hashlib
import hmac
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

PACKAGE = "azurite@3.37.0"
CACHE = Path(__file__).parents[2] / ".cache" / PACKAGE.replace("@", "-")
ACCOUNT = "devstoreaccount1"
# The key of every emulator, as its documentation prints it; nothing else accepts it.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
VERSION = "2021-12-02"
INSTALL_S = 240
START_S = 60


class AzuriteUnavailableError(Exception):
    """The package cannot be installed here."""


def command() -> Path:
    """Return the server's command, installed on its first use.

    Raises:
        AzuriteUnavailableError: There is no npm, or its registry does not answer.
    """
    found = CACHE / "node_modules" / ".bin" / "azurite-blob"
    if found.exists():
        return found
    npm = shutil.which("npm")
    if npm is None:
        raise AzuriteUnavailableError("there is no npm")
    CACHE.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE.parent) as new:
        install = [npm, "install", "--no-audit", "--no-fund", "--prefix", new, PACKAGE]
        try:
            subprocess.run(install, check=True, capture_output=True, timeout=INSTALL_S)
        except (subprocess.SubprocessError, OSError) as error:
            raise AzuriteUnavailableError(f"npm cannot install {PACKAGE}: {error}") from error
        with contextlib.suppress(OSError):  # another process was faster
            Path(new).rename(CACHE)
            Path(new).mkdir()  # for the context to remove
    return found


class Azurite:
    """A running server; objects live in its memory.

    Args:
        port: Where it listens on the loopback interface.
    """

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://127.0.0.1:{port}/{ACCOUNT}"
        self._buckets = 0

    @property
    def settings(self) -> dict[str, str]:
        """The environment of its clients."""
        return {
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": KEY,
            "AZURE_STORAGE_ENDPOINT": self.endpoint,
            "AZURE_ALLOW_HTTP": "true",
        }

    def new_bucket(self) -> str:
        """Create a container, and return the URL of a root in it."""
        self._buckets += 1
        name = f"bucket-{self._buckets}"
        date = email.utils.formatdate(usegmt=True)
        headers = {"x-ms-date": date, "x-ms-version": VERSION}
        lines = [f"{key}:{value}" for key, value in headers.items()]
        lines += [f"/{ACCOUNT}/{ACCOUNT}/{name}", "restype:container"]
        signed = "\n".join(["PUT", *[""] * 11, *lines]).encode()
        digest = hmac.new(base64.b64decode(KEY), signed, hashlib.sha256).digest()
        headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
        url = f"{self.endpoint}/{name}?restype=container"
        request = urllib.request.Request(url, method="PUT", headers=headers)
        urllib.request.urlopen(request).close()
        return f"az://{name}/root"

    def wait(self) -> None:
        """Wait until the server answers."""
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            try:
                urllib.request.urlopen(self.endpoint).close()
            except urllib.error.HTTPError:
                return  # it refuses a request without a signature
            except OSError:
                time.sleep(0.1)
        raise TimeoutError(f"no answer from {self.endpoint}")


@contextlib.contextmanager
def running() -> Iterator[Azurite]:
    """Run a server, with the environment of its clients in this process.

    Raises:
        AzuriteUnavailableError: See `command`.
    """
    program = command()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--inMemoryPersistence"]
    arguments += ["--silent", "--disableTelemetry"]
    with tempfile.TemporaryDirectory() as place:
        process = subprocess.Popen(
            [program, *arguments], cwd=place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        server = Azurite(port)
        before = {name: os.environ.get(name) for name in server.settings}
        try:
            server.wait()
            os.environ.update(server.settings)
            yield server
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})
            process.terminate()
            process.wait()
