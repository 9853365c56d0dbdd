"""Which requests are served, in which versions, by which handler; and the answers to all others.

A handler takes the broker and a request and returns the response's fields, or None where the client
expects no response. It answers errors itself, in the fields that its response has for them; an
exception that it lets through is answered by `refusal`.

Source: kafka.server.KafkaApis.
"""

import logging
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

from streamlog.errors import CorruptRecordError, StreamLogError
from streamlog.gateway.broker import Broker
from streamlog.gateway.error_codes import ErrorCode, code_of
from streamlog.gateway.features import FEATURES
from streamlog.gateway.handlers import (
    administration,
    cluster,
    configs,
    consumer_groups,
    coordinators,
    groups,
    offsets,
    producers,
    reading,
    security,
    topics,
    transactions,
    writing,
)
from streamlog.gateway.request import FileRegion, Peer, Request
from streamlog.protocol.apis import Api, RequestHeader, apis, apis_by_key, decode_header

__all__ = ["Answer", "Handler", "serve_at_once", "serve_request"]

_logger: Final = logging.getLogger(__name__)

Handler = Callable[[Broker, Request], Awaitable[dict[str, Any] | None]]
Waiting = Coroutine[Any, Any, dict[str, Any]]
# Answers, or begins to and returns how it goes on where something has to be waited for. Or returns
# None, where nothing has happened and a `Handler` has to serve the request from its beginning.
HandlerAtOnce = Callable[[Broker, Request], dict[str, Any] | Waiting | None]

_TABLES: Final[tuple[Mapping[str, Handler], ...]] = (
    administration.HANDLERS,
    cluster.HANDLERS,
    configs.HANDLERS,
    consumer_groups.HANDLERS,
    coordinators.HANDLERS,
    groups.HANDLERS,
    offsets.HANDLERS,
    producers.HANDLERS,
    reading.HANDLERS,
    security.HANDLERS,
    topics.HANDLERS,
    transactions.HANDLERS,
    writing.HANDLERS,
)

_AT_ONCE: Final[Mapping[str, HandlerAtOnce]] = {**reading.AT_ONCE, **writing.AT_ONCE}

API_VERSIONS: Final = "ApiVersions"
_FINALIZED: Final = [
    {"name": name, "minVersionLevel": level, "maxVersionLevel": level}
    for name, level in FEATURES.items()
]
_SUPPORTED: Final = [
    {"name": name, "minVersion": 0, "maxVersion": level} for name, level in FEATURES.items()
]
# Before, a client cannot read a supported feature whose levels begin at 0 (KAFKA-17011).
_LEVELS_FROM_0: Final = 4
_KEY_SIZE: Final = 2  # a request begins with the number of its API
_NAMES_SOFTWARE: Final = 3  # the first version in which clients say what they are
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


class Answer(NamedTuple):
    """An encoded response.

    Attributes:
        data: Its bytes, header included, without the size in front.
        regions: The parts of files that belong into it, by `position`.
        is_last: Whether the connection is to be closed after it.
    """

    data: bytes
    regions: list[FileRegion]
    is_last: bool = False


@cache
def _handlers() -> dict[str, Handler]:
    return {name: handler for table in _TABLES for name, handler in table.items()}


@cache
def _at_once() -> dict[int, tuple[Api, HandlerAtOnce]]:
    """Return what may be answered at once, by the numbers of the APIs."""
    return {apis()[name].key: (apis()[name], handler) for name, handler in _AT_ONCE.items()}


def serve_at_once(
    broker: Broker, peer: Peer, data: bytes
) -> Answer | Coroutine[Any, Any, Answer | None] | None:
    """Serve one request as far as that waits for nothing.

    Returns:
        The response to send; or what it has to wait for; or None where nothing has happened, and
        `serve_request` is to serve the request.
    """
    found = _at_once().get(int.from_bytes(data[:_KEY_SIZE], "big"))
    if found is None or peer.principal is None or security.expects_token(peer):
        return None
    api, handler = found
    try:
        header = decode_header(data)
        if header.version not in api.versions:
            return None
        values = api.request.decode(data, header.version, header.end).values
    except CorruptRecordError:  # met again, where the connection is closed
        return None
    request = Request(api.name, header.version, header.client_id or "", values, peer, [])
    try:
        response = handler(broker, request)
    except Exception as error:  # noqa: BLE001 - logged and answered
        response = _failed(request, error)
    if response is None:
        return None
    if isinstance(response, dict):
        return _encoded(api, header, response, request)
    return _answered(api, header, request, response)


async def serve_request(broker: Broker, peer: Peer, data: bytes) -> Answer | None:
    """Serve one request; return the response to send, or None where none is expected.

    Raises:
        CorruptRecordError: The bytes are not a request; the connection cannot be used further.
        ConnectionError: The handler closes the connection instead of answering.
    """
    if security.expects_token(peer):
        return Answer(await security.answer_token(broker, peer, data), [])
    header = decode_header(data)
    api = apis_by_key().get(header.key)
    if api is None:
        return _unknown(header)
    if api.name == API_VERSIONS:
        return _api_versions(api, header, data, peer)
    if peer.principal is None and api.name not in security.HANDLERS:
        _logger.warning("%s sent %s before it authenticated", peer.host, api.name)
        return _unsupported(api, header, ErrorCode.ILLEGAL_SASL_STATE)._replace(is_last=True)
    handler = _handlers().get(api.name)
    if handler is None or header.version not in api.versions:
        _logger.warning("%s v%d is not served", api.name, header.version)
        return _unsupported(api, header, ErrorCode.UNSUPPORTED_VERSION)
    values = api.request.decode(data, header.version, header.end).values
    request = Request(api.name, header.version, header.client_id or "", values, peer, [])
    return await _answered(api, header, request, handler(broker, request))


async def _answered(
    api: Api, header: RequestHeader, request: Request, work: Awaitable[dict[str, Any] | None]
) -> Answer | None:
    try:
        response = await work
    except ConnectionError:
        raise  # the handler closes the connection
    except Exception as error:  # noqa: BLE001 - logged and answered
        response = _failed(request, error)
    return None if response is None else _encoded(api, header, response, request)


def _failed(request: Request, error: Exception) -> dict[str, Any]:
    """Return the response where a handler let an error through."""
    if isinstance(error, StreamLogError):
        _logger.warning("%s v%d: %s", request.api, request.version, error)
        return refusal(code_of(error))
    _logger.error("%s v%d failed", request.api, request.version, exc_info=error)
    return refusal(ErrorCode.UNKNOWN_SERVER_ERROR)


def refusal(code: ErrorCode) -> dict[str, Any]:
    """Return the fields of a response that says nothing but an error."""
    return {"errorCode": int(code)}


def _encoded(api: Api, header: RequestHeader, values: dict[str, Any], request: Request) -> Answer:
    regions = request.regions
    prefix = api.response_header(header.correlation_id, header.version)
    message = api.response.encode(values, header.version)
    for region in regions:
        region.position += len(prefix)
    return Answer(prefix + message, regions, is_last=request.peer.is_leaving)


def _unknown(header: RequestHeader) -> Answer:
    """Answer an API that Kafka does not have, or that only controllers serve, and close."""
    _logger.warning("unknown API key %d v%d", header.key, header.version)
    code = int(ErrorCode.UNSUPPORTED_VERSION)
    prefix = header.correlation_id.to_bytes(4, "big", signed=True)
    return Answer(prefix + code.to_bytes(2, "big"), [], is_last=True)


def _unsupported(api: Api, header: RequestHeader, code: ErrorCode) -> Answer:
    """Answer a request that is not served, in the nearest version that Kafka declares."""
    declared = api.response.versions
    version = min(max(header.version, declared[0]), declared[-1])
    prefix = api.response_header(header.correlation_id, version)
    return Answer(
        prefix + api.response.encode(refusal(code), version),
        [],
        is_last=header.version not in declared,
    )


# ---- the versions that are served -------------------------------------------------------------
def _api_versions(api: Api, header: RequestHeader, data: bytes, peer: Peer) -> Answer:
    """Answer which APIs are served; an unknown version is answered as version 0 (KIP-511)."""
    version, code = header.version, ErrorCode.NONE
    if version not in api.versions:
        version, code = 0, ErrorCode.UNSUPPORTED_VERSION
    else:
        values = api.request.decode(data, version, header.end).values
        names = values["clientSoftwareName"], values["clientSoftwareVersion"]
        if version >= _NAMES_SOFTWARE and not all(map(_SOFTWARE.fullmatch, names)):
            return _unsupported(api, header, ErrorCode.INVALID_REQUEST)
        peer.software = f"{values['clientSoftwareName']} {values['clientSoftwareVersion']}".strip()
    response = {
        "errorCode": int(code),
        "apiKeys": _served(),
        "supportedFeatures": _SUPPORTED if version >= _LEVELS_FROM_0 else [],
        "finalizedFeaturesEpoch": 0,
        "finalizedFeatures": _FINALIZED,
    }
    prefix = api.response_header(header.correlation_id, version)
    return Answer(prefix + api.response.encode(response, version), [])


@cache
def _served() -> list[dict[str, int]]:
    served = []
    for api in apis_by_key().values():
        if api.name in _handlers() or api.name == API_VERSIONS:
            # Without Produce v0 librdkafka compresses nothing (KAFKA-18659).
            first = {"Produce": 0}.get(api.name, api.versions[0])
            served.append({"apiKey": api.key, "minVersion": first, "maxVersion": api.versions[-1]})
    return served
