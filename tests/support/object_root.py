"""Roots in object stores, for tests of the layers above `streamlog.bucket`."""

import itertools

import pytest

from streamlog.bucket.places import shared_store
from streamlog.bucket.root import BucketRoot

_numbers = itertools.count()


@pytest.fixture(params=["memory", "file"])
def url(request, tmp_path) -> str:
    """The URL of an empty root, in each kind of store that runs without a server."""
    if request.param == "memory":
        place = f"memory:///test-{next(_numbers)}"
    else:
        place = f"file://{tmp_path}/bucket"
    BucketRoot(shared_store(place)).create()
    return place


def root_at(place: str) -> BucketRoot:
    """Return a root, as another process would open it."""
    root = BucketRoot(shared_store(place))
    root.refresh()
    return root
