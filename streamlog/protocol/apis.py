"""Kafka's requests and responses, as its own definitions declare them.

`apis.json` is generated from the definitions that Kafka publishes with its clients. An `Api`
encodes and decodes its messages in every version; a codec is built when its version is first used.

Source: org.apache.kafka.common.protocol.ApiKeys and Kafka's `common/message/*.json`.
"""

import contextlib
import json
import struct
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final, NamedTuple

from streamlog.errors import CorruptRecordError
from streamlog.protocol.messages import Field, Message

__all__ = ["Api", "RequestHeader", "apis", "apis_by_key", "decode_header"]

ZERO_UUID: Final = "AAAAAAAAAAAAAAAAAAAAAA"
API_VERSIONS_KEY: Final = 18
_MOST_ELEMENTS: Final = 1 << 18  # of a request: more partitions than a cluster has, tens of MB
_CLIENT_ID: Final = 10  # where the name of the client begins, after its size
_HEADER_PREFIX: Final = struct.Struct(">hhi")  # key, version, correlation id: in every header


class RequestHeader(NamedTuple):
    """The header of a request.

    Attributes:
        key: The number of its API.
        version: The version of its message.
        correlation_id: The number that the response repeats.
        client_id: The client's name for itself; None without one.
        end: The position where the message begins.
    """

    key: int
    version: int
    correlation_id: int
    client_id: str | None
    end: int


@dataclass(frozen=True, slots=True)
class Api:
    """A request and its response.

    Attributes:
        name: Its name as Kafka spells it, without `Request`.
        key: Its number.
        versions: The stable versions that Kafka declares.
        request: The message of the client.
        response: The message of the server.
    """

    name: str
    key: int
    versions: range
    request: Message
    response: Message

    def response_header(self, correlation_id: int, version: int) -> bytes:
        """Return the header of a response to a request of this version."""
        # Before it has the versions, a client cannot know whether headers are flexible (KIP-511).
        is_flexible = self.request.is_flexible(version) and self.key != API_VERSIONS_KEY
        return correlation_id.to_bytes(4, "big", signed=True) + b"\0" * is_flexible


def decode_header(data: bytes) -> RequestHeader:
    """Decode the header of a request.

    Args:
        data: The request, without its size.

    Raises:
        CorruptRecordError: The bytes do not hold a header.
    """
    if len(data) < _HEADER_PREFIX.size:
        raise CorruptRecordError("request header: too short", got=len(data), expected="8 or more")
    key, version, correlation_id = _HEADER_PREFIX.unpack_from(data)
    api = apis_by_key().get(key)
    # An unknown version is answered, so its header is read as that of the nearest known version.
    flexible = api is not None and api.request.is_flexible(min(version, api.versions[-1]))
    size = int.from_bytes(data[_CLIENT_ID - 2 : _CLIENT_ID], "big", signed=True)
    end = _CLIENT_ID + size
    if 0 <= size < len(data) - _CLIENT_ID and not (flexible and data[end]):
        # A name and no tagged field, as usual.
        with contextlib.suppress(UnicodeDecodeError):
            name = data[_CLIENT_ID:end].decode("utf-8")
            return RequestHeader(key, version, correlation_id, name, end + flexible)
    decoded = _header().decode(data, 2 if flexible else 1)
    return RequestHeader(key, version, correlation_id, decoded.values["clientId"], decoded.end)


@cache
def apis() -> dict[str, Api]:
    """Return the APIs of brokers, by name."""
    found = {}
    for name, api in _definitions()["apis"].items():
        request = _message(f"{name}Request", api["request"], _MOST_ELEMENTS)
        response = _message(f"{name}Response", api["response"])
        last = request.versions[-1] - bool(api["unstable"])
        versions = range(request.versions[0], last + 1)
        found[name] = Api(name, api["key"], versions, request, response)
    return found


@cache
def apis_by_key() -> dict[int, Api]:
    """Return the APIs of brokers, by number."""
    return {api.key: api for api in apis().values()}


@cache
def _definitions() -> dict[str, Any]:
    text = resources.files(__package__).joinpath("apis.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


@cache
def _header() -> Message:
    return _message("RequestHeader", _definitions()["headers"]["RequestHeader"])


def _message(name: str, definition: dict[str, Any], most_elements: int | None = None) -> Message:
    return Message(
        name,
        *(_field(each) for each in definition["fields"]),
        versions=definition["versions"],
        flexible=definition["flexible"],
        fills_defaults=True,
        most_elements=most_elements,
    )


def _field(definition: dict[str, Any]) -> Field:
    fields = tuple(_field(each) for each in definition.get("fields", ()))
    return Field(
        definition["name"],
        definition["type"],
        definition["versions"],
        fields=fields,
        nullable=definition.get("nullable", "none"),
        tag=definition.get("tag"),
        default=_default(definition["type"], definition.get("default"), fields),
        flexible=definition.get("flexible"),
    )


def _default(kind: str, given: Any, fields: tuple[Field, ...]) -> Any:
    """Return the value that Kafka's generated classes start with."""
    if given == "null":
        return None
    if kind.startswith("[]"):
        return []
    if fields:
        return {each.name: each.default for each in fields}
    match kind:
        case "string":
            return given or ""
        case "bytes" | "records":
            return None if kind == "records" else b""
        case "uuid":
            return ZERO_UUID
        case "bool":
            return str(given).lower() == "true"
        case "float64":
            return float(given or 0)
        case _:
            return int(str(given or 0), 0)
