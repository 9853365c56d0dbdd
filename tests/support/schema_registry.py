"""A schema registry over HTTP for tests: the four requests that reading needs, and registering.

It answers as Confluent's documentation describes. `python -m tests.programs.registry` runs the same
tests against a real registry.
"""

import base64
import json
import os
import re
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import unquote

REAL: Final = "STREAMLOG_TEST_REGISTRY"  # the URL of a registry to use instead
VERSIONS: Final = re.compile(r"/subjects/([^/]+)/versions(?:/(latest|\d+))?$")


class Registry:
    """Subjects and schemas in memory; `user_info` is demanded of every request, if given."""

    def __init__(self, user_info: str | None = None) -> None:
        self.schemas: list[dict[str, Any]] = []
        self.guids: list[str] = []
        self.subjects: dict[str, list[int]] = {}
        self.user_info = user_info
        self.requests: list[str] = []
        self.failures = 0  # so many requests fail next

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        if self.failures:
            self.failures -= 1
            return 503, {"error_code": 50003, "message": "busy"}
        found = VERSIONS.fullmatch(path.partition("?")[0])
        if method == "POST" and found:
            number = self.register(unquote(found[1]), body)
            return 200, {"id": number, "guid": self.guids[number - 1]}
        if path.startswith("/schemas/guids/"):
            guid = path.removeprefix("/schemas/guids/").partition("?")[0]
            if guid in self.guids:
                return 200, {"guid": guid, **self.schemas[self.guids.index(guid)]}
            return 404, {"error_code": 40403}
        if path.startswith("/schemas/ids/"):
            number = int(path.removeprefix("/schemas/ids/").partition("?")[0])
            known = 0 < number <= len(self.schemas)
            return (200, self.schemas[number - 1]) if known else (404, {"error_code": 40403})
        if found and unquote(found[1]) in self.subjects:
            ids = self.subjects[unquote(found[1])]
            version = len(ids) if found[2] == "latest" else int(found[2])
            if 0 < version <= len(ids):
                number = ids[version - 1]
                known = {"version": version, "id": number, "guid": self.guids[number - 1]}
                return 200, {**known, **self.schemas[number - 1]}
        return 404, {"error_code": 40401, "message": "not found"}

    def register(self, subject: str, body: dict[str, Any]) -> int:
        body = {name: each for name, each in body.items() if name != "version"}
        if body not in self.schemas:
            self.schemas.append(body)
            self.guids.append(str(uuid.uuid4()))
        number = self.schemas.index(body) + 1
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number


@contextmanager
def serve_registry(registry: Registry) -> Iterator[str]:
    """Serve a registry on the loopback; yield its URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.answer("GET", None)

        def do_POST(self) -> None:
            size = int(self.headers["Content-Length"])
            self.answer("POST", json.loads(self.rfile.read(size)))

        def answer(self, method: str, body: Any) -> None:
            registry.requests.append(self.path)
            status, found = registry.answer(method, self.path, body)
            if registry.user_info is not None:
                token = base64.b64encode(registry.user_info.encode()).decode()
                if self.headers["Authorization"] != f"Basic {token}":
                    status, found = 401, {"error_code": 401}
            data = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def any_registry() -> Iterator[str]:
    """Yield the URL of the real registry, if there is one, else of one in memory."""
    if REAL in os.environ:
        yield os.environ[REAL]
    else:
        with serve_registry(Registry()) as url:
            yield url
