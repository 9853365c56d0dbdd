"""Functions of columns for the keys, values and headers of a log: expressions and decoders.

    from streamlog.spark import functions as SF

    df.select(SF.as_text("key"), SF.header("headers", "trace"), SF.confluent_schema_id("value"))
    df.select(SF.from_avro("value", schema_registry="schemas", subject="orders-value").alias("d"))

All of them take binary columns from anywhere, also from Spark's Kafka source. The first group, and
`from_json` and `parse_json`, are expressions that Spark runs itself. `from_avro` and
`from_protobuf` run `streamlog.decoding` in Spark's Python workers, on Arrow arrays.

Functions that decode return a struct of `value` and `error`: the error is null if the value was
decoded, and if there was none. `register_functions` makes all of this available to SQL text.

Source of the framing: Confluent's wire format, a zero byte and a big-endian schema id of 4 bytes.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - as everybody does
from pyspark.sql.types import StringType, StructField, StructType

from streamlog.decoding.decoder import DecoderSpec, Format, ResolvedSpec, open_decoder
from streamlog.errors import InvalidOptionError, InvalidRecordError
from streamlog.spark.decoded_types import as_spark_has_it, spark_type_of
from streamlog.spark.decoding_options import registry_place

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

__all__ = [
    "DecodeFunction",
    "as_text",
    "avro_decoder",
    "confluent_payload",
    "confluent_schema_id",
    "from_avro",
    "from_json",
    "from_protobuf",
    "header",
    "json_decoder",
    "parse_json",
    "protobuf_decoder",
    "register_functions",
]

_HEADER_BYTES: Final = 5  # of Confluent's framing
_SHOWN: Final = 100  # characters of a value in an error
_CORRUPT: Final = "_streamlog_corrupt_record"
_FAIL_FAST: Final = "FAILFAST"
_PERMISSIVE: Final = "PERMISSIVE"

# The same as the functions below, for SQL text. tests/spark/test_functions.py compares them.
_SQL_FUNCTIONS: Final = {
    "confluent_schema_id": """(value BINARY) RETURNS INT RETURN
        CASE WHEN length(value) >= 5 AND substring(value, 1, 1) = X'00'
        THEN try_cast(conv(hex(substring(value, 2, 4)), 16, 10) AS INT) END""",
    "confluent_payload": """(value BINARY) RETURNS BINARY RETURN
        CASE WHEN length(value) >= 5 AND substring(value, 1, 1) = X'00'
        THEN substring(value, 6) END""",
    "header": """(headers ARRAY<STRUCT<key: STRING, value: BINARY>>, name STRING)
        RETURNS BINARY RETURN
        try_element_at(filter(headers, each -> each.key = name), -1).value""",
    "as_text": """(value BINARY) RETURNS STRING RETURN
        try_validate_utf8(CAST(value AS STRING))""",
}


# ---- expressions ------------------------------------------------------------------------------
def confluent_schema_id(value: "Column | str") -> "Column":
    """Return the schema id of values with Confluent's framing, as int.

    Args:
        value: A binary column.

    Returns:
        Null for a value that does not begin with a zero byte and 4 more, or with a negative id.
    """
    column = _binary(value)
    number = F.conv(F.hex(F.substring(column, 2, 4)), 16, 10)
    return F.when(_is_framed(column), number.try_cast("int"))


def confluent_payload(value: "Column | str") -> "Column":
    """Return what follows the schema id in values with Confluent's framing.

    Of Avro and JSON this is the encoded value. Protobuf has the indexes of the message first, so
    its values need `from_protobuf`.

    Args:
        value: A binary column.

    Returns:
        A binary column; null for a value without the framing.
    """
    column = _binary(value)
    return F.when(_is_framed(column), F.substr(column, F.lit(_HEADER_BYTES + 1)))


def header(headers: "Column | str", name: str) -> "Column":
    """Return the value of a record's header; the last one if several have the name.

    Args:
        headers: The column `headers` of the source, read with `includeHeaders`.
        name: The name of the header.

    Returns:
        A binary column; null for a record without such a header.

    Source: org.apache.kafka.common.header.Headers.lastHeader.
    """
    found = F.filter(_column(headers), lambda each: each["key"] == F.lit(name))
    return F.try_element_at(found, F.lit(-1))["value"]


def as_text(value: "Column | str") -> "Column":
    """Return bytes as text; null for bytes that are not UTF-8.

    Spark's own cast returns a string for any bytes, which then compares and prints wrongly.

    Args:
        value: A binary column.
    """
    return F.try_validate_utf8(_binary(value).cast("string"))


def from_json(value: "Column | str", schema: StructType | str, **options: str) -> "Column":
    """Return values of JSON by Spark's own `from_json`, and why one cannot be read.

    Args:
        value: A binary or string column. Confluent's framing is skipped.
        schema: The type of the values: a StructType, as `infer_json_schema` returns, or a DDL
            such as `id BIGINT, name STRING`.
        **options: Options of Spark's `from_json`, such as `timestampFormat`.

    Returns:
        A struct of `value` and `error`. A value that does not fit the schema is null as a whole.
    """
    kind = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    with_corrupt = StructType([*kind.fields, StructField(_CORRUPT, StringType())])
    text = _json_text(value)
    parsed = F.from_json(
        text,
        with_corrupt,
        {**options, "mode": _PERMISSIVE, "columnNameOfCorruptRecord": _CORRUPT},
    )
    is_bad = parsed.isNull() | parsed[_CORRUPT].isNotNull()
    return _with_error(value, text, parsed.dropFields(_CORRUPT), is_bad, "JSON of this schema")


def parse_json(value: "Column | str") -> "Column":
    """Return values of JSON as VARIANT by Spark's own `try_parse_json`, and why one is not JSON.

    Args:
        value: A binary or string column. Confluent's framing is skipped.

    Returns:
        A struct of `value`, a VARIANT, and `error`.
    """
    text = _json_text(value)
    parsed = F.try_parse_json(text)
    return _with_error(value, text, parsed, parsed.isNull(), "JSON")


def _column(column: "Column | str") -> "Column":
    return F.col(column) if isinstance(column, str) else column


def _binary(column: "Column | str") -> "Column":
    return _column(column).cast("binary")


def _is_framed(column: "Column") -> "Column":
    first = F.substring(column, 1, 1) == F.lit(b"\0")
    return (F.length(column) >= _HEADER_BYTES) & first


def _json_text(value: "Column | str") -> "Column":
    """Return the JSON of values; no JSON begins with a zero byte, so a framing is certain."""
    column = _binary(value)
    return as_text(F.coalesce(confluent_payload(column), column))


def _with_error(
    value: "Column | str", text: "Column", parsed: "Column", is_bad: "Column", expected: str
) -> "Column":
    shown = F.substring(text, 1, _SHOWN)
    error = (
        F.when(_column(value).isNull(), F.lit(None))
        .when(text.isNull(), F.lit(f"not UTF-8: expected {expected}"))
        .when(is_bad, F.concat(F.lit(f"not {expected}: got "), shown))
    )
    return F.struct(F.when(~is_bad, parsed).alias("value"), error.cast("string").alias("error"))


# ---- decoders ---------------------------------------------------------------------------------
class DecodeFunction:
    """A decoder of binary columns: call it with a column, or give it a name in SQL.

    The reader's schema was fetched when this was made, and stays the same.

    Attributes:
        spec: What it decodes with.
        data_type: The type of its result: a struct of `value` and `error`.
    """

    def __init__(self, spec: DecoderSpec, *, mode: str = _PERMISSIVE) -> None:
        if mode.upper() not in (_PERMISSIVE, _FAIL_FAST):
            raise InvalidOptionError(
                "invalid value for mode", got=repr(mode), expected=f"{_PERMISSIVE} or {_FAIL_FAST}"
            )
        self.spec = replace(spec, registry=registry_place(spec.registry, "schema_registry"))
        self._resolved = self.spec.resolve()
        self._fails_fast = mode.upper() == _FAIL_FAST
        kind = as_spark_has_it(open_decoder(self._resolved).arrow_type)
        value = StructField("value", spark_type_of(kind))
        self.data_type = StructType([value, StructField("error", StringType())])

    def __call__(self, value: "Column | str", headers: "Column | str | None" = None) -> "Column":
        """Return decoded values: a struct of `value` and `error`.

        Args:
            value: A binary column.
            headers: The headers of the records, as the source has them with `includeHeaders`.
                Without them a schema that only a header names is unknown.
        """
        columns = [value] if headers is None else [value, headers]
        return self.function()(*map(_column, columns))

    def function(self) -> Any:
        """Return the Arrow UDF, of values, or of values and headers.

        Its results may change while a registry changes. So Spark does not repeat it in a filter
        that follows it.
        """
        resolved, fails_fast = self._resolved, self._fails_fast

        # Spark looks at the hints; with two columns it passes pairs nevertheless.
        def decode(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
            return decode_batches(batches, resolved, fails_fast=fails_fast)

        return F.arrow_udf(decode, returnType=self.data_type).asNondeterministic()


def decode_batches(
    batches: Iterator[pa.Array | tuple[pa.Array, ...]], resolved: ResolvedSpec, *, fails_fast: bool
) -> Iterator[pa.Array]:
    """Yield the struct of value and error for each array of values; runs in a worker.

    Args:
        batches: Arrays of values, or pairs of one of values and one of headers.
        resolved: What to decode with.
        fails_fast: Whether a value that cannot be decoded is an error of the query.

    Raises:
        InvalidRecordError: A value cannot be decoded, if `fails_fast`.
        UnavailableError: The registry cannot be reached.
    """
    decoder = open_decoder(resolved)
    kind = as_spark_has_it(decoder.arrow_type)
    for batch in batches:
        column, headers = batch if isinstance(batch, tuple) else (batch, None)
        values, errors, _ = decoder.decode(column.cast(pa.binary()), headers)
        if values.type != kind:
            values = values.cast(kind, safe=False)
        if fails_fast and errors.null_count < len(errors):
            raise InvalidRecordError(
                "value cannot be decoded",
                got=errors.drop_null()[0].as_py(),
                hint=f"mode {_PERMISSIVE} returns it as an error of its row",
            )
        yield pa.StructArray.from_arrays([values, errors], ["value", "error"])


def json_decoder(
    schema: str | None = None,
    *,
    schema_registry: str | None = None,
    subject: str | None = None,
    mode: str = _PERMISSIVE,
) -> DecodeFunction:
    """Return a decoder of JSON, to have one under a name in SQL; `from_json` runs in Spark itself.

    Args:
        schema: The type of the values as DDL, such as `id BIGINT, name STRING`, or a JSON Schema.
            Confluent's framing is skipped.
        schema_registry: As for Avro, with JSON Schemas.
        subject: As for Avro.
        mode: `PERMISSIVE` (default) returns errors by row, `FAILFAST` raises the first one.

    Raises:
        InvalidOptionError: An argument is invalid, or a JSON Schema has no form as columns.
        UnavailableError: The registry cannot be reached now.
    """
    spec = DecoderSpec(format=Format.JSON, registry=schema_registry, subject=subject, schema=schema)
    return DecodeFunction(spec, mode=mode)


def avro_decoder(
    schema: str | None = None,
    *,
    schema_registry: str | None = None,
    subject: str | None = None,
    schema_framing: str = "confluent",
    field: str = "value",
    mode: str = _PERMISSIVE,
) -> DecodeFunction:
    """Return a decoder of Avro.

    Args:
        schema: The reader's schema: its JSON, or `@FILE`.
        schema_registry: URL of a Confluent-compatible registry, or a directory of schemas.
            Credentials come from the environment.
        subject: Instead of `schema`: the subject whose latest version is the reader's schema.
        schema_framing: `confluent` (default), or `none` for values without an id.
        field: `value` (default) or `key`: whose schema the headers of a record name.
        mode: `PERMISSIVE` (default) returns errors by row, `FAILFAST` raises the first one.

    Raises:
        InvalidOptionError: An argument or the schema is invalid.
        InvalidRequestError: The library for Avro is missing.
        UnavailableError: The registry cannot be reached now.
    """
    spec = DecoderSpec(
        format=Format.AVRO,
        registry=schema_registry,
        subject=subject,
        schema=schema,
        is_framed=_is_confluent(schema_framing),
        field=_checked_field(field),
    )
    return DecodeFunction(spec, mode=mode)


def protobuf_decoder(
    schema: str | None = None,
    *,
    message: str | None = None,
    schema_registry: str | None = None,
    subject: str | None = None,
    schema_framing: str = "confluent",
    field: str = "value",
    mode: str = _PERMISSIVE,
) -> DecodeFunction:
    """Return a decoder of Protobuf; for the arguments and errors see `avro_decoder`.

    Args:
        schema: The reader's schema: the text of a `.proto`, or `@FILE`.
        message: Full name of the message; by default the first one of the schema.
        schema_registry: As for Avro.
        subject: As for Avro.
        schema_framing: As for Avro.
        field: As for Avro.
        mode: As for Avro.
    """
    spec = DecoderSpec(
        format=Format.PROTOBUF,
        registry=schema_registry,
        subject=subject,
        schema=schema,
        message=message,
        is_framed=_is_confluent(schema_framing),
        field=_checked_field(field),
    )
    return DecodeFunction(spec, mode=mode)


def from_avro(
    value: "Column | str",
    schema: str | None = None,
    *,
    headers: "Column | str | None" = None,
    **arguments: Any,
) -> "Column":
    """Return values of Avro as a struct of `value` and `error`.

    Args:
        value: A binary column.
        schema: The reader's schema; see `avro_decoder`.
        headers: The headers of the records, one of which may name the schema of the value.
        **arguments: Of `avro_decoder`, with its errors.
    """
    return avro_decoder(schema, **arguments)(value, headers)


def from_protobuf(
    value: "Column | str",
    schema: str | None = None,
    *,
    headers: "Column | str | None" = None,
    **arguments: Any,
) -> "Column":
    """Return values of Protobuf as a struct of `value` and `error`.

    Args:
        value: A binary column.
        schema: The reader's schema; see `protobuf_decoder`.
        headers: The headers of the records, one of which may name the schema of the value.
        **arguments: Of `protobuf_decoder`, with its errors.
    """
    return protobuf_decoder(schema, **arguments)(value, headers)


def register_functions(spark: "SparkSession", **decoders: DecodeFunction) -> None:
    """Give the expressions, and decoders under names of your choice, to SQL text of a session.

    Registers `confluent_schema_id(value)`, `confluent_payload(value)`, `header(headers, name)` and
    `as_text(value)` as temporary functions of Spark.

    Args:
        spark: The session; also one of Spark Connect.
        **decoders: Decoders by name: `decode_order=avro_decoder(…)` makes `decode_order(value)`.

    Raises:
        InvalidOptionError: Not a decoder; or the name of one of the four functions, or of a
            function of Spark, which SQL would call instead.
    """
    for name, decoder in decoders.items():
        is_taken = name in _SQL_FUNCTIONS or _is_builtin(spark, name)
        if is_taken or not isinstance(decoder, DecodeFunction):
            raise InvalidOptionError(
                f"cannot register the function {name}",
                got=f"a {type(decoder).__name__}",
                expected="avro_decoder(…), protobuf_decoder(…) or json_decoder(…), and a name that "
                "no other function has",
            )
    for name, definition in _SQL_FUNCTIONS.items():
        spark.sql(f"CREATE OR REPLACE TEMPORARY FUNCTION {name}{definition}")
    for name, decoder in decoders.items():
        spark.udf.register(name, decoder.function())


def _is_builtin(spark: "SparkSession", name: str) -> bool:
    return bool(spark.sql(f"SHOW SYSTEM FUNCTIONS LIKE '{name}'").collect())


def _is_confluent(framing: str) -> bool:
    if framing not in ("confluent", "none"):
        raise InvalidOptionError(
            "invalid value for schema_framing", got=repr(framing), expected="confluent or none"
        )
    return framing == "confluent"


def _checked_field(field: str) -> str:
    if field not in ("key", "value"):
        raise InvalidOptionError(
            "invalid value for field", got=repr(field), expected="key or value"
        )
    return field
