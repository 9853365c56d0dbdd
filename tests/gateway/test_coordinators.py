"""FindCoordinator: every group and transactional id is coordinated here."""

import pytest

from streamlog.gateway import Address, Gateway
from streamlog.gateway.error_codes import ErrorCode
from tests.gateway.wire_client import WireClient


@pytest.mark.parametrize("version", range(7))
@pytest.mark.parametrize("key_type", [0, 1])
def test_every_key_is_coordinated_by_this_broker(
    gateway: Gateway, client: WireClient, version: int, key_type: int
) -> None:
    address = Address.parse(gateway.bootstrap_servers)
    answer = client.call(
        "FindCoordinator", version, key="g", coordinatorKeys=["g", "h"], keyType=key_type
    )
    found = [answer] if version < 4 else answer["coordinators"]
    assert [each["key"] for each in found] == ["g", "h"] if version >= 4 else len(found) == 1
    for each in found:
        assert each["errorCode"] == ErrorCode.NONE
        assert (each["host"], each["port"]) == address


def test_an_unknown_type_of_key_is_refused(client: WireClient) -> None:
    (answer,) = client.call("FindCoordinator", 6, coordinatorKeys=["g"], keyType=9)["coordinators"]
    assert answer["errorCode"] == ErrorCode.INVALID_REQUEST
    assert answer["nodeId"] == -1
