"""Kafka's requests and responses in every version."""

from typing import Any

import pytest

from streamlog.errors import CorruptRecordError
from streamlog.protocol.apis import _header, apis, apis_by_key, decode_header


def test_defaults_survive_encoding_in_every_version() -> None:
    count = 0
    for api in apis().values():
        for message in (api.request, api.response):
            for version in message.versions:
                data = message.encode({}, version)
                decoded = message.decode(data, version)
                assert decoded.end == len(data)
                assert message.encode(decoded.values, version) == data
                count += 1
    assert count > 300


def test_the_apis_of_a_broker_are_there() -> None:
    by_key = apis_by_key()
    assert {0, 1, 2, 3, 8, 9, 10, 11, 18, 22, 26, 68, 69, 75} <= by_key.keys()
    assert by_key[1].versions == range(4, 19)
    assert by_key[22].versions == range(6)  # version 6 is not stable


@pytest.mark.parametrize(("key", "version", "size"), [(3, 5, 12), (3, 9, 13), (18, 99, 13)])
def test_the_header_is_read_in_the_form_of_its_version(key: int, version: int, size: int) -> None:
    data = key.to_bytes(2, "big") + version.to_bytes(2, "big") + (7).to_bytes(4, "big")
    header = decode_header(data + b"\0\x02me" + b"\0")
    assert header == (key, version, 7, "me", size)


def test_a_short_header_is_refused() -> None:
    with pytest.raises(CorruptRecordError, match="request header: too short"):
        decode_header(b"\0\x03\0\x05")


def test_a_response_header_has_tagged_fields_except_for_api_versions() -> None:
    known = apis()
    cases: list[tuple[str, int, int]] = [
        ("Metadata", 8, 4),
        ("Metadata", 9, 5),
        ("ApiVersions", 3, 4),
    ]
    for name, version, size in cases:
        assert len(known[name].response_header(1, version)) == size


def test_a_struct_that_is_null_by_default_is_skipped() -> None:
    values: dict[str, Any] = (
        apis()["Fetch"].request.decode(apis()["Fetch"].request.encode({}, 17), 17).values
    )
    assert values["replicaState"] == {"replicaId": -1, "replicaEpoch": -1}


@pytest.mark.parametrize("version", [1, 12], ids=["plain", "flexible"])
@pytest.mark.parametrize(
    "client",
    [
        b"\0\0",
        b"\0\x02me",
        b"\0\x02\xc3\xbc",
        b"\xff\xff",
        b"\0\x02\xff\xff",
        b"\0\x09me",
        b"\0",
        b"\x80\0" + b"a" * 33_000,
        b"\x7f\xff" + b"a" * 33_000,
    ],
)
@pytest.mark.parametrize("rest", [b"", b"\0", b"\0rest", b"\x01\x05\x01x", b"\x01\x05\x09x"])
def test_a_header_is_read_as_the_codec_reads_it(version: int, client: bytes, rest: bytes) -> None:
    data = b"\0\x03" + version.to_bytes(2, "big") + b"\0\0\0\x07" + client + rest
    codec = _header()
    try:
        values, end = codec.decode(data, 2 if version == 12 else 1)
    except CorruptRecordError:
        with pytest.raises(CorruptRecordError):
            decode_header(data)
    else:
        assert decode_header(data) == (3, version, 7, values["clientId"], end)
