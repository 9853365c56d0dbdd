"""Decoders: columns of encoded values to columns of Arrow types.

A value that cannot be decoded is null in the result and has an error beside it. Nothing else stops
because of it.
"""

from typing import NamedTuple, Protocol

import pyarrow as pa

__all__ = ["DecodedValues", "ValueDecoder"]


class DecodedValues(NamedTuple):
    """Decoded values.

    Attributes:
        values: pa.Array[n] of the decoder's type; null where the input is null or bad.
        errors: pa.StringArray[n]: null, or in one line what is wrong with the value.
        schema_ids: pa.Int32Array[n]: the id of the writer's schema; null if the value has none, or
            a GUID instead.
    """

    values: pa.Array
    errors: pa.StringArray
    schema_ids: pa.Int32Array


class ValueDecoder(Protocol):
    """Decodes columns of values; for one thread at a time.

    Attributes:
        arrow_type: The type of decoded values.
        needs_headers: Whether the headers of records may name the schema of their values.
    """

    arrow_type: pa.DataType
    needs_headers: bool

    def decode(self, values: pa.BinaryArray, headers: pa.ListArray | None = None) -> DecodedValues:
        """Decode values.

        Args:
            values: pa.BinaryArray[n], as in the log; nulls stay null.
            headers: pa.ListArray[n] of structs of `key` and `value`: the headers of the records;
                None if they have none.

        Raises:
            UnavailableError: A schema cannot be fetched now; nothing was decoded.
        """
        ...
