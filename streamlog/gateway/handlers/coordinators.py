"""Which broker coordinates a group or a transactional id: this one; FindCoordinator.

Source: KafkaApis.handleFindCoordinatorRequest.
"""

from enum import IntEnum
from typing import Any, Final

from streamlog.errors import InvalidRequestError, StreamLogError
from streamlog.gateway.broker import Broker
from streamlog.gateway.error_codes import ErrorCode, code_of
from streamlog.gateway.groups.coordinator import GroupCoordinator
from streamlog.gateway.request import Request
from streamlog.gateway.transactions.coordinator import TransactionCoordinator

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
    """Answer this broker's address for each group or transactional id.

    Clients may look at the coordinator's topic next, even commit offsets of it: it exists by then.
    """
    values, code, message = request.values, ErrorCode.NONE, None
    try:
        await _prepare(broker, values["keyType"])
    except InvalidRequestError as error:
        code, message = code_of(error), str(error)
    except StreamLogError as error:
        code, message = ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)
    found = {
        **(_NOWHERE if code else {"nodeId": broker.node_id, **broker.address._asdict()}),
        "errorCode": int(code),
        "errorMessage": message,
    }
    if request.version < _BATCHED:
        return found
    return {"coordinators": [{"key": key, **found} for key in values["coordinatorKeys"]]}


async def _prepare(broker: Broker, key_type: int) -> None:
    """Create the topic of a coordinator if it is missing."""
    if key_type == _KeyType.GROUP:
        await broker.coordinator(GroupCoordinator).prepare()
    elif key_type == _KeyType.TRANSACTION:
        await broker.coordinator(TransactionCoordinator).prepare()
    else:
        raise InvalidRequestError("unknown type of key", got=key_type, expected="0 or 1")


HANDLERS: Final = {"FindCoordinator": find_coordinator}
