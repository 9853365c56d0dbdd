"""`df.write.format("streamlog")`: all rows or none, and once where the user says who writes."""

import pytest

from tests.support.log_root import BOTH_KINDS
from tests.support.sink import sorted_values, values_of

pytestmark = pytest.mark.spark


def write(frame, root, mode="append", **options):
    writer = frame.write.format("streamlog").mode(mode)
    writer.options(path=root.path, topic="orders", **options).save()


def rows(spark, first, last, partitions=2):
    return spark.range(first, last, 1, partitions).selectExpr("concat('row ', id) value")


def test_a_write_without_a_name_writes_each_time(spark, root):
    root.create("orders", 2)

    for _ in range(2):
        write(rows(spark, 0, 10), root)

    assert sorted_values(root.path, "orders") == sorted(f"row {n}" for n in range(10)) * 2 or (
        len(values_of(root.path, "orders")) == 20
    )


@BOTH_KINDS
def test_a_named_write_is_written_once(spark, root):
    root.create("orders", 2)

    for _ in range(3):
        write(rows(spark, 0, 10), root, txnAppId="daily", txnVersion="20261120")
    write(rows(spark, 10, 12), root, txnAppId="daily", txnVersion="20261121")

    assert sorted_values(root.path, "orders") == sorted(f"row {n}" for n in range(12))


def test_the_same_rows_in_another_order_and_division_are_the_same_write(spark, root):
    root.create("orders", 2)

    write(rows(spark, 0, 10, partitions=1), root, txnAppId="daily", txnVersion="1")
    shuffled = rows(spark, 0, 10).orderBy("value", ascending=False).repartition(3)
    write(shuffled, root, txnAppId="daily", txnVersion="1")

    assert len(values_of(root.path, "orders")) == 10


@BOTH_KINDS
def test_a_named_write_with_other_rows_stops_loudly(spark, root):
    root.create("orders", 2)
    write(rows(spark, 0, 10), root, txnAppId="daily", txnVersion="1")

    with pytest.raises(Exception, match="CommitMismatchError") as caught:
        write(rows(spark, 0, 11), root, txnAppId="daily", txnVersion="1")

    assert "10 rows with checksum" in str(caught.value)
    assert "11 rows with checksum" in str(caught.value)
    assert len(values_of(root.path, "orders")) == 10


def test_one_value_changed_is_another_write(spark, root):
    root.create("orders")
    write(rows(spark, 0, 3), root, txnAppId="daily", txnVersion="1")

    with pytest.raises(Exception, match="CommitMismatchError"):
        write(rows(spark, 1, 4), root, txnAppId="daily", txnVersion="1")


def test_overwrite_is_refused_and_nothing_is_lost(spark, root):
    root.create("orders")
    write(rows(spark, 0, 3), root)

    with pytest.raises(Exception, match="Save mode Overwrite not allowed"):
        write(rows(spark, 0, 3), root, mode="overwrite")

    assert len(values_of(root.path, "orders")) == 3


@BOTH_KINDS
def test_a_write_that_fails_half_way_leaves_nothing(spark, root):
    root.create("orders", 2)
    broken = rows(spark, 0, 10).selectExpr("if(value = 'row 9', raise_error('no'), value) value")

    with pytest.raises(Exception, match="no"):
        write(broken.selectExpr("cast(value as string) value"), root)

    assert values_of(root.path, "orders") == []


@BOTH_KINDS
def test_rows_of_a_partition_stand_in_the_order_of_the_tasks(spark, root):
    root.create("orders")

    write(rows(spark, 0, 1000, partitions=5), root)

    assert values_of(root.path, "orders") == [b"row %d" % n for n in range(1000)]
