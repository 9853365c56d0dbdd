"""What needs a directory refuses the URL of an object store, and makes nothing of that name."""

from collections.abc import Callable
from pathlib import Path

import pytest

import streamlog
from streamlog.errors import InvalidOptionError
from streamlog.fs.log_root import LogRoot
from streamlog.maintenance.runner import Maintenance
from streamlog.testing.topic import Topic


@pytest.mark.parametrize("url", ["s3://bucket/root", "gs://b", "AZ://c/r", "file:///tmp/root"])
@pytest.mark.parametrize(
    "open_it",
    [
        lambda url: streamlog.LogManager.open(url),
        lambda url: streamlog.LogManager.open(url, create=True),
        lambda url: streamlog.PartitionLog.open(f"{url}/clicks-0"),
        lambda url: streamlog.LogReader.open(f"{url}/clicks-0"),
        lambda url: streamlog.Producer(url),
        lambda url: streamlog.Consumer(url),
        lambda url: streamlog.ReplicaSet.open(["disk-1", url]),
        lambda url: Maintenance(url),
        lambda url: Topic(url, "clicks"),
        lambda url: LogRoot.at(url),
    ],
)
def test_a_url_is_refused_with_the_way_that_works(
    open_it: Callable[[str], object], url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidOptionError, match="needs a directory") as caught:
        open_it(url)
    assert "write_table" in str(caught.value) and "topics create" in str(caught.value)
    assert "bucket" not in str(caught.value).partition("object store")[2]
    assert list(tmp_path.iterdir()) == []
