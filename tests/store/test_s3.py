"""An S3 server that refuses, or waits: users without rights, and requests at the same time."""

import json
import threading
import urllib.request
from collections.abc import Iterator
from typing import Any

import boto3
import numpy as np
import pytest

from streamlog.bucket.root import BucketRoot
from streamlog.errors import StorageError, UnavailableError
from streamlog.store.api import ObjectRange
from streamlog.store.remote import PIECE_SIZE, REQUESTS_AT_ONCE, open_store
from streamlog.topic import TopicPartition
from tests.bucket.staged import commit, stage, values_of
from tests.support.s3 import S3Server

A = TopicPartition("orders", 0)
READING = {
    "Version": "2012-10-17",
    "Statement": [
        {"Effect": "Allow", "Action": ["s3:Get*", "s3:List*", "s3:Head*"], "Resource": "*"}
    ],
}


@pytest.fixture
def filled(s3: S3Server) -> str:
    """The URL of a root with a commit."""
    url = s3.new_bucket()
    root = BucketRoot(open_store(url))
    root.create()
    root.create_topic("orders")
    commit(root, "q", 0, stage(root, "q", 0, {A: [b"first"]}))
    return url


@pytest.fixture
def guarded(s3: S3Server) -> Iterator[dict[str, str]]:
    """Make the server check who asks; return the keys of a user who may only read."""
    iam: Any = boto3.client("iam", endpoint_url=s3.endpoint, region_name="us-east-1")
    iam.create_user(UserName="reader")
    iam.put_user_policy(UserName="reader", PolicyName="reading", PolicyDocument=json.dumps(READING))
    keys = iam.create_access_key(UserName="reader")["AccessKey"]
    set_unchecked(s3, "0")
    yield keys
    set_unchecked(s3, "inf")
    iam.delete_access_key(UserName="reader", AccessKeyId=keys["AccessKeyId"])
    iam.delete_user_policy(UserName="reader", PolicyName="reading")
    iam.delete_user(UserName="reader")


def set_unchecked(s3: S3Server, count: str) -> None:
    """Let the server check credentials after so many requests."""
    plain = {"Content-Type": "text/plain"}
    request = urllib.request.Request(f"{s3.endpoint}/moto-api/reset-auth", count.encode(), plain)
    urllib.request.urlopen(request).close()


def test_unknown_credentials_are_named_and_not_shown(
    s3: S3Server, filled: str, guarded: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a secret of mine")
    with pytest.raises(StorageError, match=r"denies access|credentials") as caught:
        BucketRoot(open_store(filled)).refresh()
    assert "a secret of mine" not in str(caught.value)
    assert caught.value.hint is not None


def test_who_may_only_read_reads_and_commits_nothing(
    filled: str, guarded: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", guarded["AccessKeyId"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", guarded["SecretAccessKey"])
    root = BucketRoot(open_store(filled))
    number = root.refresh().number
    assert values_of(root, A) == [b"first"]
    with pytest.raises(StorageError, match="denies access") as caught:
        stage(root, "q", 1, {A: [b"second"]})
    assert "policy of the bucket" in str(caught.value)
    with pytest.raises(UnavailableError, match=r"denies access.*policy of the bucket"):
        root.create_topic("other")
    assert root.refresh().number == number


def test_a_large_range_is_read_by_eight_requests_at_once(s3: S3Server) -> None:
    store = open_store(s3.new_bucket())
    content = np.random.default_rng(1).integers(0, 256, 12 * PIECE_SIZE, np.uint8)
    store.put("large", content)
    meet = Meeting(s3)
    target = np.empty(len(content), np.uint8)
    with meet:
        store.read_into([ObjectRange("large", 0, len(content))], target)
    assert np.array_equal(target, content)
    assert meet.most == REQUESTS_AT_ONCE == 8


class Meeting:
    """Holds requests until as many as may come at once are there, and counts them."""

    def __init__(self, s3: S3Server) -> None:
        self._s3, self._change = s3, threading.Condition()
        self._now, self.most = 0, 0
        self._answer = s3.answer

    def __enter__(self) -> None:
        self._s3.answer = self.answer

    def __exit__(self, *_: object) -> None:
        self._s3.answer = self._answer

    def answer(self, environ, start):  # type: ignore[no-untyped-def]
        """Answer a request when the others are there."""
        with self._change:
            self._now += 1
            self.most = max(self.most, self._now)
            self._change.notify_all()
            self._change.wait_for(lambda: self.most >= REQUESTS_AT_ONCE, timeout=20)
        try:
            return self._answer(environ, start)
        finally:
            with self._change:
                self._now -= 1
