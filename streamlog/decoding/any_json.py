"""JSON of any form as JSON text, where no schema says which columns it has.

The text is what `cat --decode` prints: in one line, without spaces. Values become Python objects,
at the speed of `json.loads`.
"""

import pyarrow as pa

from streamlog.decoding.arrays import array_of_ids, array_of_texts
from streamlog.decoding.as_json import parsed_json
from streamlog.decoding.decoded import DecodedValues
from streamlog.decoding.framing import NO_ID, data_of, ids_of, spans_of, without_prefixes
from streamlog.records.json_objects import to_json

__all__ = ["AnyJsonDecoder"]


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
