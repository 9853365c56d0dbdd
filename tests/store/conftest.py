import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamlog.store.api import ObjectStore
from streamlog.store.remote import open_store

_numbers = itertools.count()


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """Run a server that speaks S3; return its address."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3_url(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the URL of a path in a new bucket; the environment has what reaches it."""
    import urllib.request

    for name, value in {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT": s3_endpoint,
        "AWS_ALLOW_HTTP": "true",
    }.items():
        monkeypatch.setenv(name, value)
    bucket = f"bucket-{next(_numbers)}"
    urllib.request.urlopen(urllib.request.Request(f"{s3_endpoint}/{bucket}", method="PUT")).close()
    return f"s3://{bucket}/path/root"


@pytest.fixture(params=["memory", "file", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    """Return an empty store of each kind that runs here."""
    if request.param == "s3":
        return open_store(request.getfixturevalue("s3_url"))
    return open_store("memory:///" if request.param == "memory" else f"file://{tmp_path}/root")
