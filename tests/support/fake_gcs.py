"""fake-gcs-server, an emulator of Google Cloud Storage, behind a proxy for clients of the XML API.

The emulator knows the JSON API best. The proxy passes requests on as the JSON API has them: a
write with its condition, a copy, and the parts of an upload as one write. It decides nothing.
"""

import contextlib
import http.client
import itertools
import json
import os
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

from tests.programs.wire.go_command import go, go_environment

MODULE: Final = "github.com/fsouza/fake-gcs-server@v1.56.1"
CACHE: Final = Path(__file__).parents[2] / ".cache" / "fake-gcs-server-1.56.1"
PUBLIC: Final = "storage.googleapis.com"  # the host by which the emulator knows its XML API
START_S: Final = 60
_DROPPED: Final = ("host", "content-length", "transfer-encoding", "connection")


def command() -> Path:
    """Return the server's command, built on its first use, which takes minutes.

    Raises:
        OSError: There is no go command.
        subprocess.CalledProcessError: It cannot be built.
    """
    found = CACHE / "fake-gcs-server"
    if not found.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        environment = go_environment() | {"GOBIN": str(CACHE), "GOFLAGS": "-modcacherw"}
        subprocess.run([go(), "install", MODULE], check=True, env=environment)
    return found


class FakeGcs:
    """A running emulator; objects live in its memory.

    Args:
        port: Where it listens on the loopback interface.
        proxy_port: Where the proxy listens.
    """

    def __init__(self, port: int, proxy_port: int) -> None:
        self.port, self.proxy_port, self._buckets = port, proxy_port, 0

    def account(self) -> str:
        """Return the content of a service account's file that leads clients here."""
        return json.dumps(
            {
                "gcs_base_url": f"http://127.0.0.1:{self.proxy_port}",
                "disable_oauth": True,
                "client_email": "",
                "private_key": "",
                "private_key_id": "",
            }
        )

    def new_bucket(self) -> str:
        """Create a bucket, and return the URL of a root in it."""
        self._buckets += 1
        name = f"bucket-{self._buckets}"
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/storage/v1/b",
            json.dumps({"name": name}).encode(),
            {"Content-Type": "application/json"},
        )
        urllib.request.urlopen(request).close()
        return f"gs://{name}/root"

    def wait(self) -> None:
        """Wait until the server answers."""
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/storage/v1/b").close()
                return
            time.sleep(0.1)
        raise TimeoutError("fake-gcs-server does not answer")


class _Proxy(BaseHTTPRequestHandler):
    """Translates one request."""

    protocol_version = "HTTP/1.1"
    port = 0
    uploads: dict[str, dict[int, bytes]]
    numbers: "itertools.count[int]"

    def answer(self) -> None:
        """Answer a request of any method."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urllib.parse.urlsplit(self.path)
        bucket, _, key = parts.path.lstrip("/").partition("/")
        query = dict(urllib.parse.parse_qsl(parts.query, keep_blank_values=True))
        upload = query.get("uploadId", "")
        if self.command == "POST" and "uploads" in query:
            upload = str(next(self.numbers))
            self.uploads[upload] = {}
            text = f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId>"
            self._send(200, [], f"{text}</InitiateMultipartUploadResult>".encode())
        elif self.command == "PUT" and upload:
            self.uploads[upload][int(query["partNumber"])] = body
            self._send(200, [("ETag", f'"{query["partNumber"]}"')], b"")
        elif self.command == "POST" and upload:
            pieces = sorted(self.uploads.pop(upload).items())
            status, headers, data = self._write(bucket, key, b"".join(each for _, each in pieces))
            done = b"<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>"
            self._send(status, headers, done if status == 200 else data)
        elif self.command == "DELETE" and upload:
            self.uploads.pop(upload, None)
            self._send(204, [], b"")
        elif self.command == "PUT" and "x-goog-copy-source" in self.headers:
            source, _, name = self.headers["x-goog-copy-source"].lstrip("/").partition("/")
            path = f"/storage/v1/b/{source}/o/{name}/rewriteTo/b/{bucket}/o/{key}"
            self._send(*self._ask("POST", path, b""))
        elif self.command == "PUT":
            status, headers, data = self._write(bucket, key, body)
            self._send(status, [*headers, ("ETag", '"written"')], data)
        elif self.command == "GET" and bucket and not key:
            self._send(*self._ask("GET", f"/?{parts.query}", b"", f"{bucket}.{PUBLIC}"))
        else:
            self._send(*self._ask(self.command, self.path, body))

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = answer  # noqa: N815 - names of the base class

    def _write(
        self, bucket: str, key: str, body: bytes
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        query = {"uploadType": "media", "name": urllib.parse.unquote(key)}
        condition = self.headers.get("x-goog-if-generation-match")
        if condition is not None:
            query["ifGenerationMatch"] = condition
        path = f"/upload/storage/v1/b/{bucket}/o?{urllib.parse.urlencode(query)}"
        return self._ask("POST", path, body)

    def _ask(
        self, method: str, path: str, body: bytes, host: str = PUBLIC
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        kept = {key: value for key, value in self.headers.items() if key.lower() not in _DROPPED}
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request(method, path, body, kept | {"Host": host})
        found = connection.getresponse()
        data = found.read()
        connection.close()
        return found.status, found.getheaders(), data

    def _send(self, status: int, headers: list[tuple[str, str]], data: bytes) -> None:
        is_head = self.command == "HEAD"
        self.send_response(status)
        for key, value in headers:
            if key.lower() not in _DROPPED or (is_head and key.lower() == "content-length"):
                self.send_header(key, value)
        if not is_head:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if not is_head:
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextlib.contextmanager
def running(account: Path) -> Iterator[FakeGcs]:
    """Run the emulator, with the environment of its clients in this process.

    Args:
        account: Where the file of the service account is written.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory"]
    process = subprocess.Popen([command(), *arguments], stderr=subprocess.DEVNULL)
    handler = type("Proxy", (_Proxy,), {"port": port, "uploads": {}, "numbers": itertools.count(1)})
    proxy = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=proxy.serve_forever, daemon=True)
    thread.start()
    try:
        server = FakeGcs(port, proxy.server_address[1])
        server.wait()
        account.write_text(server.account())
        os.environ["GOOGLE_SERVICE_ACCOUNT_PATH"] = str(account)
        yield server
    finally:
        os.environ.pop("GOOGLE_SERVICE_ACCOUNT_PATH", None)
        proxy.shutdown()
        thread.join()
        process.terminate()
        process.wait()
