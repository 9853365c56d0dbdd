"""What every request meets: versions, unknown requests, nonsense."""

import pytest

from streamlog import LogManager
from streamlog.gateway import Gateway
from streamlog.gateway.error_codes import ErrorCode
from tests.gateway.wire_client import WireClient, frame


def test_api_versions_lists_what_is_served(client: WireClient) -> None:
    for version in range(5):
        answer = client.call("ApiVersions", version)
        assert answer["errorCode"] == ErrorCode.NONE
        served = {
            each["apiKey"]: (each["minVersion"], each["maxVersion"]) for each in answer["apiKeys"]
        }
        assert served[18] == (0, 4)
        assert served[3] == (0, 13)


def test_an_unknown_version_of_api_versions_is_answered_as_version_0(client: WireClient) -> None:
    data = bytearray(frame("ApiVersions", 3, 7, {}))
    data[2:4] = (99).to_bytes(2, "big")
    client.send_frame(bytes(data))
    answer = client.receive("ApiVersions", 0, 7)
    assert answer["errorCode"] == ErrorCode.UNSUPPORTED_VERSION
    assert answer["apiKeys"]


def test_an_api_that_is_not_served_is_answered_and_the_connection_goes_on(
    client: WireClient,
) -> None:
    answer = client.call("AlterUserScramCredentials", 0, deletions=[], upsertions=[])
    assert answer["errorCode" if "errorCode" in answer else "results"] in (
        [],
        ErrorCode.UNSUPPORTED_VERSION,
    )
    assert client.call("ApiVersions", 3)["errorCode"] == ErrorCode.NONE


def test_an_unknown_api_is_answered_before_the_connection_closes(client: WireClient) -> None:
    client.send_frame((999).to_bytes(2, "big") + b"\0\0" + (5).to_bytes(4, "big") + b"\xff\xff")
    assert client.receive_frame() == (5).to_bytes(4, "big") + b"\0\x23"
    with pytest.raises(ConnectionError):
        client.receive_frame()


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\0\0\0",  # a negative size
        b"\x7f\xff\xff\xff",  # a size above the limit
        b"\0\0\0\x03\0\x03\0",  # no whole header
        b"\0\0\0\x0a\0\x03\0\x09\0\0\0\x01\0\x7f",  # a client id that is not there
    ],
)
def test_nonsense_closes_the_connection_and_no_other(gateway: Gateway, data: bytes) -> None:
    with (
        WireClient(gateway.bootstrap_servers) as other,
        WireClient(gateway.bootstrap_servers) as bad,
    ):
        bad.send_raw(data)
        with pytest.raises(ConnectionError):
            bad.receive_frame()
        assert other.call("ApiVersions", 3)["errorCode"] == ErrorCode.NONE


def test_metadata_names_topics_of_other_processes(root: object, client: WireClient) -> None:
    assert client.call("Metadata", 12, topics=None)["topics"] == []
    with LogManager.open(str(root)) as manager:
        created = manager.create_topic("orders", 2)
    (topic,) = client.call("Metadata", 12, topics=None)["topics"]
    assert (topic["name"], topic["topicId"]) == ("orders", created.topic_id)
    assert [each["partitionIndex"] for each in topic["partitions"]] == [0, 1]
    (by_id,) = client.call("Metadata", 12, topics=[{"topicId": created.topic_id, "name": None}])[
        "topics"
    ]
    assert by_id["name"] == "orders"


@pytest.mark.parametrize("name", ["", "-a", "a b", "a\n", "a_b", "a."])
def test_clients_say_what_they_are(client: WireClient, name: str) -> None:
    for field in ("clientSoftwareName", "clientSoftwareVersion"):
        refused = client.call("ApiVersions", 3, **{field: name})
        assert (refused["errorCode"], refused["apiKeys"]) == (ErrorCode.INVALID_REQUEST, [])
        known = {"clientSoftwareName": "librdkafka", "clientSoftwareVersion": "2.0.2-RC1"}
        assert client.call("ApiVersions", 3, **known)["errorCode"] == ErrorCode.NONE
    assert client.call("ApiVersions", 2, clientSoftwareName=name)["errorCode"] == ErrorCode.NONE
