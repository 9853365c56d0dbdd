"""The kernels of `streamlog.exchange.text_kernels` in plain Python."""

import base64
import json
from collections.abc import Sequence

from streamlog.records.json_objects import ESCAPED, text_field
from streamlog.records.record import Header


def plain_mark_invalid(values: Sequence[bytes | None]) -> list[bool]:
    """Return which values are not UTF-8; null is."""
    return ["valueBase64" in text_field("value", value, "utf8") for value in values]


def plain_encode_values(values: Sequence[bytes | None], encoding: str) -> list[str | None]:
    """Return values in base64 or hex."""
    if encoding == "hex":
        return [None if value is None else value.hex() for value in values]
    return [None if value is None else base64.b64encode(value).decode() for value in values]


def plain_encode_headers(headers: Sequence[Sequence[Header]], encoding: str) -> list[str | None]:
    """Return headers as JSON lists, None for none."""
    return [_list(each, encoding) if each else None for each in headers]


def plain_quote_values(values: Sequence[str | None]) -> list[str | None]:
    """Return text as JSON strings, None for none."""
    return [None if value is None else _json(value) for value in values]


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).translate(ESCAPED)


def _list(headers: Sequence[Header], encoding: str) -> str:
    found = [{"key": key, **text_field("value", value, encoding)} for key, value in headers]
    return _json(found)
