"""Which broker coordinates a group or a transactional id: this one; FindCoordinator.

Source: KafkaApis.handleFindCoordinatorRequest.
"""

from collections.abc import Callable
from typing import Any, Final

from streamlog.errors import StreamLogError
from streamlog.gateway.broker import Broker, Coordinator
from streamlog.gateway.error_codes import ErrorCode
from streamlog.gateway.groups.coordinator import GroupCoordinator
from streamlog.gateway.request import Request
from streamlog.gateway.transactions.coordinator import TransactionCoordinator

__all__ = ["HANDLERS"]

_BATCHED: Final = 4  # the first version with several keys
_NOWHERE: Final = {"nodeId": -1, "host": "", "port": -1}
# By the type of a key (FindCoordinatorRequest.CoordinatorType).
_COORDINATORS: Final[dict[int, Callable[[Broker], Coordinator]]] = {
    0: GroupCoordinator,
    1: TransactionCoordinator,
}


async def find_coordinator(broker: Broker, request: Request) -> dict[str, Any]:
    """Answer this broker's address for each group or transactional id.

    Clients may look at the coordinator's topic next, even commit offsets of it: it exists by then.
    """
    values, code, message = request.values, ErrorCode.NONE, None
    kind = _COORDINATORS.get(values["keyType"])
    if kind is None:
        code, message = ErrorCode.INVALID_REQUEST, f"unknown type of key: {values['keyType']}"
    else:
        try:
            await broker.coordinator(kind).prepare()
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


HANDLERS: Final = {"FindCoordinator": find_coordinator}
