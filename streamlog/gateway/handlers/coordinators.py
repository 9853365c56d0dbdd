"""Which broker coordinates a group or a transactional id: this one; FindCoordinator.

Source: KafkaApis.handleFindCoordinatorRequest.
"""

from enum import IntEnum
from typing import Any, Final

from streamlog.gateway.broker import Broker
from streamlog.gateway.error_codes import ErrorCode
from streamlog.gateway.request import Request

__all__ = ["HANDLERS"]

_BATCHED: Final = 4  # the first version with several keys
_NOWHERE: Final = {"nodeId": -1, "host": "", "port": -1}


class _KeyType(IntEnum):
    """What a coordinator is looked for.

    Source: org.apache.kafka.common.requests.FindCoordinatorRequest.CoordinatorType.
    """

    GROUP = 0
    TRANSACTION = 1


async def find_coordinator(broker: Broker, request: Request) -> dict[str, Any]:
    """Answer this broker's address for each group or transactional id."""
    values = request.values
    is_known = values["keyType"] in list(_KeyType)
    found = {
        **({"nodeId": broker.node_id, **broker.address._asdict()} if is_known else _NOWHERE),
        "errorCode": int(ErrorCode.NONE if is_known else ErrorCode.INVALID_REQUEST),
        "errorMessage": None if is_known else f"unknown type of key: {values['keyType']}",
    }
    if request.version < _BATCHED:
        return found
    return {"coordinators": [{"key": key, **found} for key in values["coordinatorKeys"]]}


HANDLERS: Final = {"FindCoordinator": find_coordinator}
