from hypothesis import given
from hypothesis import strategies as st

from streamlog.segment.filenames import (
    MAX_OFFSET,
    FileSuffix,
    SegmentFileName,
    SegmentSuffix,
    log_file_name,
    parse_log_file_name,
    parse_segment_file_name,
    segment_file_name,
    torn_file_name,
)

offsets = st.integers(0, MAX_OFFSET)


def test_names_have_twenty_digits() -> None:
    assert log_file_name(0) == "00000000000000000000.log"
    assert log_file_name(MAX_OFFSET) == "09223372036854775807.log"
    name = segment_file_name(7, FileSuffix.TXN_INDEX, SegmentSuffix.SWAP)
    assert name == "00000000000000000007.txnindex.swap"


@given(offsets, st.sampled_from(FileSuffix), st.sampled_from(SegmentSuffix))
def test_parsing_inverts_naming(offset: int, kind: FileSuffix, suffix: SegmentSuffix) -> None:
    name = segment_file_name(offset, kind, suffix)
    assert parse_segment_file_name(name) == SegmentFileName(offset, kind, suffix)


def test_only_a_live_log_is_a_segment() -> None:
    assert parse_log_file_name(log_file_name(42)) == 42
    assert parse_log_file_name(log_file_name(42) + ".deleted") is None
    assert parse_log_file_name(segment_file_name(42, FileSuffix.OFFSET_INDEX)) is None


def test_foreign_names_are_no_files_of_a_segment() -> None:
    foreign = (
        "5.log",
        "abc.log",
        "000000000000000000000.log",
        "99999999999999999999.log",  # above int64
        chr(0x660) * 20 + ".log",  # Arabic digits
        "00000000000000000000.logs",
        "00000000000000000000.log\n",
        "00000000000000000000.log.deleted.deleted",
        torn_file_name(log_file_name(0), 1),
        "-0000000000000000001.log",
        "leader-epoch-checkpoint",
        "",
    )
    assert [parse_segment_file_name(name) for name in foreign] == [None] * len(foreign)


@given(st.text(max_size=40))
def test_any_text_is_parsed_or_refused_quietly(name: str) -> None:
    parsed = parse_segment_file_name(name)
    assert parsed is None or segment_file_name(*parsed) == name
