"""A schema registry over HTTP: Confluent's, or one that answers in the same way.

Four requests are used: `GET /schemas/ids/ID`, `GET /schemas/guids/GUID`,
`GET /subjects/SUBJECT/versions/latest` and, for the schemas that another one refers to,
`GET /subjects/SUBJECT/versions/VERSION`.

Credentials come from the environment only, so that they stand in no option, log or checkpoint:

    SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO       USER:PASSWORD
    SCHEMA_REGISTRY_BEARER_TOKEN               a token instead
    SCHEMA_REGISTRY_SSL_CA_LOCATION            certificates of authorities, as PEM
    SCHEMA_REGISTRY_SSL_CERTIFICATE_LOCATION   this client's certificate, as PEM
    SCHEMA_REGISTRY_SSL_KEY_LOCATION           its key, if it is in a file of its own

Source: Confluent's documentation, "Schema Registry API Reference".
"""

import json
import os
from typing import Any, Final
from urllib.parse import quote, urlsplit

from streamlog.decoding.errors import missing_extra
from streamlog.decoding.schema_text import SchemaText
from streamlog.errors import (
    InvalidOptionError,
    InvalidRequestError,
    LimitExceededError,
    RegistryError,
    UnknownSchemaError,
)

__all__ = ["SchemaRegistry"]

_PREFIX: Final = "SCHEMA_REGISTRY_"
_MAX_ANSWER_BYTES: Final = 16 << 20
_CHUNK_BYTES: Final = 64 << 10
_MAX_REFERENCES: Final = 500
_TIMEOUTS_S: Final = (5.0, 30.0)  # to connect; to wait for bytes of the answer
_ATTEMPTS: Final = 3
_BACKOFF_S: Final = 0.2  # doubled after each attempt
_PASSING: Final = (429, 500, 502, 503, 504)  # answers after which the request is repeated
_REFUSED: Final = (401, 403)
_ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"


class SchemaRegistry:
    """Schemas of a registry; see `streamlog.decoding.schemas.Schemas`.

    Args:
        url: Its address, `http://HOST:PORT` or `https://HOST/PATH`.

    Raises:
        InvalidOptionError: A URL without a host, or with credentials.
        InvalidRequestError: A library is missing.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.username is not None or parts.password is not None:
            raise InvalidOptionError(
                "credentials of a registry must not stand in its URL, which logs and checkpoints "
                "would show",
                hint=f"set {_PREFIX}BASIC_AUTH_USER_INFO=USER:PASSWORD in the environment",
            )
        if not parts.hostname:
            raise InvalidOptionError("no host in the registry's URL", got=repr(url))
        self._url = url.rstrip("/")
        self._session = _open_session(self._url)

    def by_id(self, schema_id: int) -> SchemaText:
        """Return the schema with an id."""
        answer = self._get(f"/schemas/ids/{schema_id}", "unknown schema id", schema_id)
        return self._schema(answer)

    def by_guid(self, guid: str) -> SchemaText:
        """Return the schema with a GUID; registries that have none do not know it."""
        return self._schema(self._get(f"/schemas/guids/{guid}", "unknown schema GUID", guid))

    def latest(self, subject: str) -> SchemaText:
        """Return the latest version of a subject."""
        return self._schema(self._version(subject, "latest"))

    def _version(self, subject: str, version: str) -> dict[str, Any]:
        path = f"/subjects/{quote(subject, safe='')}/versions/{version}"
        return self._get(path, "unknown subject or version", f"{subject!r}, {version}")

    def _schema(self, answer: dict[str, Any]) -> SchemaText:
        references: dict[str, str] = {}
        self._add_references(answer, references, set())
        return SchemaText(_text(answer), tuple(references.items()))

    def _add_references(
        self, answer: dict[str, Any], found: dict[str, str], seen: set[tuple[str, str]]
    ) -> None:
        """Add the schemas that an answer refers to, dependencies first."""
        for reference in answer.get("references") or ():
            try:
                name, subject = reference["name"], reference["subject"]
                version = str(int(reference["version"]))
            except (KeyError, TypeError, ValueError):
                raise self._strange(f"a reference {reference!r}") from None
            if (subject, version) in seen:
                continue
            seen.add((subject, version))
            if len(seen) > _MAX_REFERENCES:
                raise self._strange(f"more than {_MAX_REFERENCES} references")
            target = self._version(subject, version)
            self._add_references(target, found, seen)
            found[name] = _text(target)

    def _get(self, path: str, unknown: str, what: object) -> dict[str, Any]:
        import requests

        url = self._url + path
        try:
            with self._session.get(url, timeout=_TIMEOUTS_S, stream=True) as response:
                status = response.status_code
                body = _body(response)
        except requests.RequestException as error:
            raise RegistryError(
                "the schema registry cannot be reached", path=self._url, got=type(error).__name__
            ) from error
        if status == 404:
            raise UnknownSchemaError(unknown, path=self._url, got=what)
        if status in _REFUSED:
            raise InvalidRequestError(
                "the schema registry refuses the request",
                path=self._url,
                got=f"HTTP status {status}",
                hint=f"set {_PREFIX}BASIC_AUTH_USER_INFO=USER:PASSWORD in the environment",
            )
        if status != 200:
            raise RegistryError("the schema registry failed", path=url, got=f"HTTP status {status}")
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict) or not isinstance(answer.get("schema"), str):
            raise self._strange("no JSON object with a schema")
        return answer

    def _strange(self, got: str) -> RegistryError:
        return RegistryError("this is no answer of a schema registry", path=self._url, got=got)


def _text(answer: dict[str, Any]) -> str:
    return str(answer["schema"])


def _body(response: Any) -> bytes:
    body = bytearray()
    for chunk in response.iter_content(_CHUNK_BYTES):
        body += chunk
        if len(body) > _MAX_ANSWER_BYTES:
            raise LimitExceededError(
                "the schema registry's answer is too long",
                path=response.url,
                expected=f"at most {_MAX_ANSWER_BYTES} bytes",
            )
    return bytes(body)


def _open_session(url: str) -> Any:
    try:
        import requests
        from requests.adapters import HTTPAdapter
        from urllib3.util.retry import Retry
    except ImportError as error:
        raise missing_extra("a schema registry", error) from error
    session = requests.Session()
    session.headers["Accept"] = _ACCEPT
    retries = Retry(
        total=_ATTEMPTS - 1,
        backoff_factor=_BACKOFF_S,
        status_forcelist=_PASSING,
        allowed_methods=("GET",),
        raise_on_status=False,
    )
    session.mount(url, HTTPAdapter(max_retries=retries))
    token = os.environ.get(f"{_PREFIX}BEARER_TOKEN")
    user, is_given, password = os.environ.get(f"{_PREFIX}BASIC_AUTH_USER_INFO", "").partition(":")
    if token:
        session.auth = _Bearer(token)
    elif is_given:
        session.auth = (user, password)
    authorities = os.environ.get(f"{_PREFIX}SSL_CA_LOCATION")
    if authorities:
        session.verify = authorities
    certificate = os.environ.get(f"{_PREFIX}SSL_CERTIFICATE_LOCATION")
    key = os.environ.get(f"{_PREFIX}SSL_KEY_LOCATION")
    if certificate:
        session.cert = (certificate, key) if key else certificate
    return session


class _Bearer:
    """Adds a token to requests."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, request: Any) -> Any:
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request
