"""The kernels of `streamlog.exchange.text_kernels` in plain Python."""

import base64
import json
from collections.abc import Sequence

from streamlog.records.json_objects import ESCAPED, text_field
from streamlog.records.record import Header


def plain_text(values: Sequence[bytes | None], encoding: str) -> list[list[str | None]]:
    """Return a column as text, and with `utf8` a second one in base64 for what is no UTF-8."""
    if encoding != "utf8":
        encode = (lambda value: value.hex()) if encoding == "hex" else _base64
        return [[None if value is None else encode(value) for value in values]]
    fields = [text_field("value", value, "utf8") for value in values]
    return [[each.get("value") for each in fields], [each.get("valueBase64") for each in fields]]


def plain_headers(headers: Sequence[Sequence[Header]], encoding: str) -> list[str | None]:
    """Return headers as JSON lists, None for none."""
    return [_list(each, encoding) if each else None for each in headers]


def _list(headers: Sequence[Header], encoding: str) -> str:
    found = [{"key": key, **text_field("value", value, encoding)} for key, value in headers]
    return json.dumps(found, ensure_ascii=False, separators=(",", ":")).translate(ESCAPED)


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()
