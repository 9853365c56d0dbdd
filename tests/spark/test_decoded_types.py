"""The types that decoded values have in Spark."""

import datetime
import io
import json

import fastavro
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_type

from streamlog.decoding.decoder import DecoderSpec, Format, open_decoder
from streamlog.errors import InvalidOptionError
from streamlog.spark.decoded_types import as_spark_has_it, spark_type_of
from streamlog.spark.functions import decode_batches
from tests.decoding.test_protobuf_values import PROTO


def logical(kind, name, **more):
    return {"type": kind, "logicalType": name, **more}


TYPES = {
    "n": "null",
    "e": {"type": "enum", "name": "E", "symbols": ["A"]},
    "f": {"type": "fixed", "name": "F", "size": 4},
    "u": ["int", "string"],
    "date": logical("int", "date"),
    "decimal": logical("bytes", "decimal", precision=9, scale=2),
    "ms": logical("long", "timestamp-millis"),
    "ns": logical("long", "timestamp-nanos"),
    "local": logical("long", "local-timestamp-nanos"),
    "times": {"type": "array", "items": logical("int", "time-millis")},
    "map": {"type": "map", "values": ["null", logical("long", "time-micros")]},
}
SCHEMA = {
    "type": "record",
    "name": "All",
    "fields": [{"name": name, "type": kind} for name, kind in TYPES.items()],
}


def test_every_type_of_avro_is_one_of_spark() -> None:
    spec = DecoderSpec(format=Format.AVRO, schema=json.dumps(SCHEMA), is_framed=False).resolve()
    kind = as_spark_has_it(open_decoder(spec).arrow_type)
    assert spark_type_of(kind).simpleString() == (
        "struct<n:void,e:string,f:binary,u:struct<member0:int,member1:string>,date:date,"
        "decimal:decimal(9,2),ms:timestamp,ns:timestamp,local:timestamp_ntz,times:array<int>,"
        "map:map<string,bigint>>"
    )
    buffer = io.BytesIO()
    row = {
        "n": None,
        "e": "A",
        "f": b"1234",
        "u": "x",
        "date": 1,
        "decimal": b"\x05",
        "ms": 1,
        "ns": 1_999,
        "local": -1,
        "times": [datetime.time(0, 0, 1)],
        "map": {"a": datetime.time(0, 0, 2), "b": None},
    }
    fastavro.schemaless_writer(buffer, SCHEMA, row)
    (found,) = decode_batches(iter([pa.array([buffer.getvalue()])]), spec, fails_fast=True)
    assert found.type.field("value").type == kind
    value = found.field("value")[0].as_py()
    assert (value["times"], value["map"]) == ([1000], [("a", 2_000_000), ("b", None)])
    assert value["ns"] == datetime.datetime(1970, 1, 1, 0, 0, 0, 1, datetime.timezone.utc)


def test_every_type_of_protobuf_is_one_of_spark() -> None:
    spec = DecoderSpec(format=Format.PROTOBUF, schema=PROTO).resolve()
    kind = as_spark_has_it(open_decoder(spec).arrow_type)
    assert to_arrow_type(spark_type_of(kind), timezone="UTC") == kind


@pytest.mark.parametrize(
    "kind", [pa.decimal256(50, 2), pa.uint64(), pa.struct([("a", pa.uint8())])]
)
def test_a_type_that_spark_does_not_have_is_refused(kind) -> None:
    with pytest.raises(InvalidOptionError, match="Spark has no type"):
        spark_type_of(as_spark_has_it(kind))
