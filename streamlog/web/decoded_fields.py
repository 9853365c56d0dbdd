"""Decoded keys and values of the records on a page."""

import json
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit, urlunsplit

import pyarrow as pa

from streamlog.arrow.schema import HEADERS, arrow_schema
from streamlog.web.values import MAX_SHOWN, ShownValue, shown_value
from streamlog.words import human_size

if TYPE_CHECKING:
    from streamlog.decoding.as_json import FieldDecoder

__all__ = ["DecodedFields"]

_FIELDS: Final = ("key", "value")
_HEADERS: Final = arrow_schema((HEADERS,)).field(HEADERS).type


class DecodedFields:
    """Decodes what a page shows.

    Attributes:
        needs_headers: Whether the headers of records are needed: one may name a schema.

    Args:
        decoders: The decoders of `key` and `value`; what has none is shown as it is stored.
    """

    def __init__(self, decoders: "Mapping[str, FieldDecoder]") -> None:
        self._decoders = decoders
        self.needs_headers = bool(decoders)
        self._lock = threading.Lock()  # decoders are for one thread at a time

    def flags(self) -> list[str]:
        """Return the words of the command line that decode so, without credentials."""
        words = [
            word for name, each in self._decoders.items() for word in ("-s", f"{name}={each.kind}")
        ]
        registries = {each.registry for each in self._decoders.values() if each.registry}
        return [*words, *(word for each in registries for word in ("-r", _public(each)))]

    def add_lines(self, rows: Sequence[dict[str, Any]]) -> None:
        """Give each record its `lines`: its key and value in short, decoded where that is possible.

        Args:
            rows: Records with `key`, `value` and, if `needs_headers`, `headers`.

        Raises:
            UnavailableError: The schema registry cannot be reached.
        """
        for row in rows:
            row["lines"] = {name: row[name] for name in _FIELDS}
        for name in self._decoders:
            for row, value, error in zip(rows, *self._decode(name, rows), strict=True):
                if error is None and row[name] is not None:
                    row["lines"][name] = json.dumps(value, ensure_ascii=False)

    def add_shown(self, row: dict[str, Any]) -> None:
        """Give a record what is `shown` of its key and value, each a `ShownValue`.

        A field that cannot be decoded is shown as it is stored, with the reason.

        Raises:
            UnavailableError: The schema registry cannot be reached.
        """
        row["shown"] = {name: shown_value(row[name]) for name in _FIELDS}
        for name, decoder in self._decoders.items():
            (value,), (error,) = self._decode(name, [row])
            if error is not None:
                row["shown"][name] = row["shown"][name]._replace(error=error)
            elif row[name] is not None:
                row["shown"][name] = _shown(value, str(decoder.kind))

    def _decode(
        self, name: str, rows: Sequence[dict[str, Any]]
    ) -> tuple[list[Any], list[str | None]]:
        values = pa.array([row[name] for row in rows], pa.binary())
        headers = pa.array([row["headers"] for row in rows], _HEADERS)
        with self._lock:
            return self._decoders[name].decode(values, headers)


def _shown(value: Any, kind: str) -> ShownValue:
    text = json.dumps(value, indent=2, ensure_ascii=False)
    note = f"the first {human_size(MAX_SHOWN)}" if len(text) > MAX_SHOWN else ""
    return ShownValue(f"decoded from {kind}", text[:MAX_SHOWN], note)


def _public(registry: str) -> str:
    """Return a registry without what may be a secret; a directory as it is."""
    if "://" not in registry:
        return registry
    parts = urlsplit(registry)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))
