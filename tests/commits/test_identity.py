"""Names and fingerprints of commits."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.commits.identity import (
    CommitIdentity,
    app_key,
    check_identity,
    producer_id_for,
)
from streamlog.errors import InvalidRequestError

APPS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=300)


@given(APPS)
def test_app_key_is_a_plain_file_name_whatever_the_app_is(app: str) -> None:
    key = app_key(app)
    assert 0 < len(key.encode()) <= 120
    assert "/" not in key and "@" not in key and "\0" not in key
    assert not key.startswith(".")
    assert key.isascii() and key.isprintable()


@given(APPS, APPS)
def test_app_key_tells_apps_apart(one: str, other: str) -> None:
    assert (app_key(one) == app_key(other)) == (one == other)


@pytest.mark.parametrize(
    ("app", "key"),
    [
        ("1b4e28ba-2fa1/orders", "1b4e28ba-2fa1%2Forders"),
        ("..", "%2E."),
        (".hidden", "%2Ehidden"),
        ("a b", "a%20b"),
        ("ü", "%C3%BC"),
    ],
)
def test_app_key_stays_readable(app: str, key: str) -> None:
    assert app_key(app) == key


@pytest.mark.parametrize("app", ["", "x" * 5000, "a\ud800"])
def test_an_impossible_app_is_refused(app: str) -> None:
    with pytest.raises(InvalidRequestError, match="txnAppId"):
        check_identity(CommitIdentity(app, 0))


@pytest.mark.parametrize("version", [-1, 2**63])
def test_an_impossible_version_is_refused(version: int) -> None:
    with pytest.raises(InvalidRequestError, match="txnVersion"):
        check_identity(CommitIdentity("a", version))


def test_anonymous_identities_differ() -> None:
    random = Random(1)
    first, second = CommitIdentity.anonymous(random), CommitIdentity.anonymous(random)
    assert first != second and first.is_anonymous
    check_identity(first)


@given(APPS)
def test_producer_ids_lie_where_no_broker_gets(app: str) -> None:
    assert 2**62 <= producer_id_for(app) < 2**62 + 2**61


def test_producer_id_is_fixed_for_ever() -> None:
    assert producer_id_for("query-1/t") == 2**62 + (0xCA3BE555B417DC6F >> 3)
