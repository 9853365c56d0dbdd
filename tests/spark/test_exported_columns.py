"""What Spark makes of files that were exported with decoding."""

import datetime

import pytest

from tests.exchange.decoded_topics import decoding, fill_decoded, write_schemas
from tests.exchange.topics import export

pytestmark = pytest.mark.spark


def test_parquet_has_typed_columns(spark, tmp_path):
    fill_decoded(tmp_path / "root", 0, 20)
    export(
        tmp_path / "root",
        tmp_path / "there",
        "parquet",
        decoding=decoding(write_schemas(tmp_path / "schemas")),
    )

    frame = spark.read.parquet(str(tmp_path / "there"))

    types = {each.name: each.dataType.simpleString() for each in frame.schema}
    assert types["key"] == "struct<k:string>"
    assert types["value"] == "struct<id:bigint,tags:array<string>>"
    assert types["_error"].startswith("struct<field:string,message:string,schemaId:int")
    assert types["timestamp"] == "timestamp" and types["offset"] == "bigint"
    rows = (
        frame.where("partition = 0").orderBy("offset").selectExpr("value.*", "_error", "timestamp")
    )
    found = rows.collect()
    assert [row.id for row in found] == [each if each % 10 < 8 else None for each in range(20)]
    assert found[2].tags == ["a", 'quote "'] and found[2]._error is None
    assert bytes(found[9]._error.value) == b"\xff9"
    assert found[1].timestamp - found[0].timestamp == datetime.timedelta(milliseconds=1)
