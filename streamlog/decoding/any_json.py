"""JSON of any form as JSON text, where no schema says which columns it has.

The text is what `cat --decode` prints: in one line, without spaces. Values become Python objects,
at the speed of `json.loads`.
"""

import json
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from streamlog.decoding.arrays import array_of_ids, array_of_texts
from streamlog.decoding.decoded import DecodedValues
from streamlog.decoding.framing import NO_ID, data_of, ids_of, spans_of, without_prefixes
from streamlog.decoding.json_values import parse_value
from streamlog.records.json_objects import to_json

__all__ = ["AnyJsonDecoder", "json_number", "parsed_json"]


class AnyJsonDecoder:
    """Decodes JSON to JSON text; see `ValueDecoder`.

    Attributes:
        arrow_type: Strings.
        needs_headers: False: nothing is in front of a value whose schema a header names.
    """

    arrow_type: pa.DataType = pa.string()
    needs_headers = False

    def decode(self, values: pa.BinaryArray, headers: pa.ListArray | None = None) -> DecodedValues:
        """See `ValueDecoder.decode`."""
        ids = ids_of(data_of(values), *spans_of(values))
        found, errors = parsed_json(without_prefixes(values, ids != NO_ID))
        is_there = values.is_valid().to_pylist()
        texts = [
            to_json(value).decode() if error is None and has_value else None
            for value, error, has_value in zip(found, errors, is_there, strict=True)
        ]
        return DecodedValues(array_of_texts(texts), array_of_texts(errors), array_of_ids(ids))


def parsed_json(values: pa.BinaryArray) -> tuple[list[Any], list[str | None]]:
    """Return what JSON of any form shows of each value, and what is wrong with it."""
    found: list[Any] = []
    errors: list[str | None] = []
    for value in values.to_pylist():
        error = None
        parsed = None
        if value is not None:
            try:
                parsed = _numbers(parse_value(value))
            except UnicodeEncodeError:
                error = "invalid JSON: half of a surrogate pair, which UTF-8 does not have"
            except RecursionError:
                error = "nested too deeply"
            except ValueError as bad:
                error = str(bad)
        found.append(parsed)
        errors.append(error)
    return found, errors


def _numbers(value: Any) -> Any:
    """Return a parsed document with numbers that JSON has.

    Raises:
        UnicodeEncodeError: A text in it has no UTF-8.
    """
    if isinstance(value, dict):
        return {_numbers(name): _numbers(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_numbers(each) for each in value]
    if isinstance(value, str) and not value.isascii():
        value.encode()
    return json_number(float(value)) if isinstance(value, Decimal) else value


def json_number(value: float) -> float | str:
    """Return a number; JSON has none for infinity and NaN."""
    return value if np.isfinite(value) else json.dumps(value)
