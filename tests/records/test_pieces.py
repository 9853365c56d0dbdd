"""Decoding by known bytes: the memory of a piece is bounded, whatever batches decompress to."""

from typing import Any

import pytest

from streamlog.errors import CorruptRecordError, LimitExceededError
from streamlog.records.batch import scan_batches
from streamlog.records.builder import encode_columns
from streamlog.records.columns import InputColumns, RecordColumns
from streamlog.records.decode import Wanted, decode_columns, decode_pieces
from streamlog.records.filter import locate
from streamlog.records.record import CompressionType, Record
from tests.twins.legacy_builder import LegacyBuilder

MIB = 1 << 20


def batches_of(sizes: list[tuple[int, int]], codec: CompressionType) -> bytes:
    """Return a batch for each pair of record count and value size."""
    parts = []
    for count, size in sizes:
        columns = InputColumns.from_records([Record(b"k", b"v" * size)] * count, now_ms=1)
        encoded = encode_columns(columns, compression=codec, batch_size=1 << 30)
        parts.append(encoded.buffer.tobytes())
    return b"".join(parts)


def pieces_of(buffer: bytes, **wanted: Any) -> list[RecordColumns]:
    table = scan_batches(buffer).table
    pieces = list(decode_pieces(buffer, table, Wanted(**wanted)))
    assert sum(len(done) for done, _ in pieces) == len(table)
    return [records for _, records in pieces]


@pytest.mark.parametrize("codec", list(CompressionType))
def test_tiny_records_do_not_predict_the_large_ones_after_them(codec: CompressionType) -> None:
    buffer = batches_of([(2000, 1), *[(1, MIB)] * 24], codec)

    pieces = pieces_of(buffer, max_bytes=4 * MIB, max_rows=50_000)

    assert sum(piece.count for piece in pieces) == 2024
    assert max(piece.value.data.nbytes for piece in pieces if piece.value is not None) <= 5 * MIB
    assert len(pieces) <= 8


@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.ZSTD])
def test_pieces_together_equal_the_whole(codec: CompressionType) -> None:
    buffer = batches_of([(3, 10), (1, 5000), (7, 100), (1, 1), (2, 3000)], codec)
    whole = decode_columns(buffer, scan_batches(buffer).table)

    for size in (1, 500, 6000, 1 << 30):
        pieces = pieces_of(buffer, max_bytes=size)
        assert list(RecordColumns.concatenate(pieces).records()) == list(whole.records())


def test_a_piece_has_at_most_the_wanted_rows_or_one_batch() -> None:
    buffer = batches_of([(4, 10)] * 10, CompressionType.LZ4)
    assert [piece.count for piece in pieces_of(buffer, max_rows=9)] == [8] * 5
    assert [piece.count for piece in pieces_of(buffer, max_rows=1)] == [4] * 10


def test_damage_after_a_piece_is_raised_after_it() -> None:
    buffer = bytearray(batches_of([(1, MIB)] * 3, CompressionType.ZSTD))
    table = scan_batches(bytes(buffer)).table
    buffer[int(table.position[2]) + 61] ^= 0xFF
    pieces = decode_pieces(bytes(buffer), table, Wanted(max_bytes=MIB))
    assert [next(pieces)[1].count, next(pieces)[1].count] == [1, 1]
    with pytest.raises(CorruptRecordError):
        next(pieces)


def test_a_batch_above_the_limit_is_refused_with_the_setting_to_raise() -> None:
    buffer = batches_of([(1, 10), (1, 2 * MIB)], CompressionType.ZSTD)
    table = scan_batches(buffer).table
    with pytest.raises(LimitExceededError) as caught:
        list(decode_pieces(buffer, table, Wanted(max_decompressed=MIB), path="0.log"))
    text = str(caught.value)
    for way in ("streamlog.max.decompressed.bytes", "maxDecompressedBytes", "0.log"):
        assert way in text
    assert len(pieces_of(buffer, max_decompressed=3 * MIB)) == 1


def test_compaction_locates_records_some_megabytes_at_a_time() -> None:
    buffer = batches_of([(1, 3 * MIB)] * 8, CompressionType.ZSTD)
    table = scan_batches(buffer).table
    pieces = list(locate(buffer, table, max_decompressed=4 * MIB, path="", position=0))
    assert [len(found.rows) for _, found in pieces] == [3, 3, 2]
    assert max(found.source.nbytes for _, found in pieces) <= 11 * MIB


def test_messages_of_old_formats_are_decoded_in_pieces_too() -> None:
    parts = []
    for at in range(6):
        builder = LegacyBuilder(1, base_offset=at, compression=CompressionType.GZIP)
        builder.append(Record(b"k", b"v" * MIB, timestamp=5))
        parts.append(builder.build())
    buffer = b"".join(parts)
    pieces = pieces_of(buffer, max_bytes=2 * MIB)
    assert [piece.count for piece in pieces] == [2, 2, 2]
    assert [int(piece.offset[0]) for piece in pieces] == [0, 2, 4]
