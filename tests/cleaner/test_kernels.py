"""The cleaner's kernels beside their twins: hashing, the offset map, filtering batches."""

from hashlib import md5
from random import Random, SystemRandom

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.binary.arrays import as_source
from streamlog.cleaner import map_kernels as k
from streamlog.cleaner.offset_map import BYTES_PER_KEY, OffsetMap
from streamlog.errors import InvalidConfigError
from streamlog.records import filter_kernels as f
from streamlog.records.batch import scan_batches
from streamlog.records.builder import BatchBuilder
from streamlog.records.filter import Selection, filter_batches, locate
from streamlog.records.layout import RECORD_BATCH_OVERHEAD
from streamlog.records.record import Header, Record
from streamlog.records.slot import (
    SLOT_KEY,
    SLOT_KEY_SIZE,
    SLOT_OFFSET,
    SLOT_VALUE_SIZE,
    SLOT_WIDTH,
)
from streamlog.records.slots import RecordSlots, decode_slots
from tests.twins.offset_map import plain_choose_records, plain_put_keys
from tests.twins.records import Batch, Kept, Plain, rewrite_batches

KEYS = st.lists(st.none() | st.binary(max_size=3), max_size=40)


def slots_of(keys: list[bytes | None], has_value: list[bool] | None = None) -> RecordSlots:
    """Return records of keys and offsets, each a batch; those without a value have none."""
    slots = np.zeros((len(keys), SLOT_WIDTH), np.int64)
    data = b""
    for row, key in enumerate(keys):
        slots[row, SLOT_OFFSET] = row
        slots[row, SLOT_KEY] = len(data)
        slots[row, SLOT_KEY_SIZE] = -1 if key is None else len(key)
        slots[row, SLOT_VALUE_SIZE] = 0 if has_value is None or has_value[row] else -1
        data += key or b""
    rows = np.ones(len(keys), np.int64)
    return RecordSlots(source=as_source(data + bytes(8)), slots=slots, rows=rows)


def put(offset_map: OffsetMap, records: RecordSlots, start: int = 0) -> int:
    """Put all records that have a key."""
    return offset_map.put(records, np.ones(len(records.rows), np.bool_), start)


def stay(offset_map: OffsetMap, records: RecordSlots, way: int = k.LAST_STAY) -> list[bool]:
    """Return which records stay, of batches of one record; the counts must say the same."""
    keep, counts = offset_map.choose(records, np.full(len(records.rows), way))
    tombstones = keep & (records.slots[:, SLOT_VALUE_SIZE] < 0)
    assert counts.tolist() == np.stack((keep, tombstones), axis=1).astype(int).tolist()
    return [bool(each) for each in keep]


@given(
    dirty=st.lists(st.tuples(st.none() | st.binary(max_size=2), st.booleans()), max_size=150),
    clean=KEYS,
    capacity=st.integers(1, 12),
    way=st.sampled_from([k.ALL_GO, k.ALL_STAY, k.LAST_STAY, k.LAST_VALUES_STAY]),
    room=st.sampled_from([0, 1, 4 << 20]),
)
def test_the_map_chooses_as_a_dictionary_does(
    dirty: list[tuple[bytes | None, bool]],
    clean: list[bytes | None],
    capacity: int,
    way: int,
    room: int,
) -> None:
    """Records of the clean section, of the dirty one, and behind a map that got full."""
    start = len(clean)
    keys = [*clean, *(key for key, _ in dirty)]
    has_value = [*([True] * start), *(has for _, has in dirty)]
    records = slots_of(keys, has_value=has_value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamlog.cleaner.offset_map.OVERTAKEN_SIZE", room)
        offset_map = OffsetMap(
            memory=(capacity + 1) * BYTES_PER_KEY, load_factor=1.0, random=Random(5)
        )
    known: dict[bytes, int] = {}
    wanted = [(at, key if at >= start else None) for at, key in enumerate(keys)]
    assert put(offset_map, records, start) == plain_put_keys(known, wanted, capacity)
    assert (offset_map.size, offset_map.is_full) == (len(known), len(known) == capacity)
    latest = max(known.values(), default=-1)
    assert offset_map.latest_offset == latest
    plain = list(zip(range(len(keys)), keys, has_value, strict=True))
    assert stay(offset_map, records, way) == plain_choose_records(known, latest, plain, way)


def test_a_batch_that_is_left_out_puts_nothing() -> None:
    records = slots_of([b"a", b"b", b"a"])
    offset_map = OffsetMap(memory=1 << 12, random=Random(1))
    offset_map.put(records, np.array([True, True, False]), 0)
    offset_map.update_latest_offset(2)
    assert offset_map.size == 2
    assert stay(offset_map, records) == [True, True, True]


def test_keys_whose_search_begins_at_one_place_are_kept_apart() -> None:
    """Of 500 keys in 501 places most collide with another one, at the table's end too."""
    keys: list[bytes | None] = [b"%d" % number for number in range(500)]
    offset_map = OffsetMap(memory=501 * BYTES_PER_KEY, load_factor=1.0, random=Random(7))
    assert put(offset_map, slots_of(keys)) == 500
    assert offset_map.size == 500
    assert stay(offset_map, slots_of(keys)) == [True] * 500
    assert offset_map.utilization == 500 / 501


def test_memory_for_no_key_is_refused() -> None:
    with pytest.raises(InvalidConfigError, match="too small for a single key"):
        OffsetMap(memory=BYTES_PER_KEY, random=Random(1))


def test_kafkas_arithmetic_says_how_many_keys_fit() -> None:
    assert OffsetMap(memory=128 << 20, random=Random(1)).capacity == int(5_592_405 * 0.9)


# Two keys of one MD5 (Wang and Yu): Kafka's map takes them for one, and loses a record.
MD5_KEY = bytes.fromhex(
    "d131dd02c5e6eec4693d9a0698aff95c2fcab58712467eab4004583eb8fb7f8955ad340609f4b302"
    "83e488832571415a085125e8f7cdc99fd91dbdf280373c5bd8823e3156348f5bae6dacd436c919c6"
    "dd53e2b487da03fd02396306d248cda0e99f33420f577ee8ce54b67080a80d1ec69821bcb6a88393"
    "96f9652b6ff72a70"
)
MD5_TWIN = bytes(
    byte ^ (0x80 if at in (19, 45, 59, 83, 109, 123) else 0) for at, byte in enumerate(MD5_KEY)
)


def test_keys_of_one_md5_are_two_keys() -> None:
    assert MD5_KEY != MD5_TWIN
    assert md5(MD5_KEY).digest() == md5(MD5_TWIN).digest()
    offset_map = OffsetMap(memory=1 << 20, random=SystemRandom())
    records = slots_of([MD5_KEY, MD5_TWIN])
    put(offset_map, records)
    assert stay(offset_map, records) == [True, True]


# ---- filtering -----------------------------------------------------------------------------------
FIELDS = st.none() | st.binary(max_size=9)
HEADERS = st.lists(st.tuples(st.text(max_size=3), FIELDS), max_size=2)
RECORD = st.tuples(FIELDS, FIELDS, HEADERS, st.integers(-1, 2**41))
FATES = st.sampled_from([f.DROP, f.COPY, f.REWRITE, f.EMPTY])
PLANS = st.lists(
    st.tuples(
        st.lists(st.tuples(RECORD, st.booleans()), min_size=1, max_size=4),
        FATES,
        st.sampled_from([f.NO_HORIZON, 0, 1_700_000_000_000]),
        st.booleans(),
    ),
    max_size=4,
)


@given(PLANS)
@settings(max_examples=60)
def test_batches_are_filtered_as_the_twin_filters_them(plans: list[tuple]) -> None:  # type: ignore[type-arg]
    buffer, offset, kept, keep, fates, horizons = b"", 0, [], [], [], []
    for records, planned, horizon, stamped in plans:
        builder = BatchBuilder(
            base_offset=offset, log_append_time=77 if stamped else None, producer_id=9,
            producer_epoch=1, base_sequence=3, is_transactional=True, last_offset=offset + 5,
        )  # fmt: skip
        stay = []
        for at, ((key, value, headers, timestamp), stays) in enumerate(records):
            listed = tuple(Header(*each) for each in headers)
            builder.append(Record(key, value, listed, timestamp, offset=offset + at))
            plain = [(name.encode(), content) for name, content in headers]
            if stays:
                time = 77 if stamped else timestamp
                stay.append((offset + at, Plain(time, key, value, plain)))
        fate = planned if stay or planned != f.REWRITE else f.EMPTY
        buffer += builder.build()
        offset += 6
        kept.append(Kept(fate, horizon, stay))
        keep += [stays for _, stays in records]
        fates.append(fate)
        horizons.append(horizon)
    table = scan_batches(buffer).table
    located = list(locate(buffer, table, max_decompressed=1 << 20, path="", position=0))
    records = located[0][1] if plans else decode_slots(buffer, table, max_decompressed=1)
    selection = Selection(
        fates=np.array(fates, np.int64),
        horizons=np.array(horizons, np.int64),
        keep=np.array(keep, np.bool_),
    )
    found = filter_batches(buffer, table, records, selection)
    expected = rewrite_batches(buffer, [Batch(*row) for row in table.fields.tolist()], kept)
    assert len(found.table) == len(expected)
    again = scan_batches(found.buffer).table
    for row, (batch, data) in zip(again.fields.tolist(), expected, strict=True):
        ours = Batch(*row)
        assert ours._replace(position=0, crc=0) == batch._replace(position=0, crc=0)
        bytes_of = found.buffer[ours.position :][: ours.size].tobytes()
        assert bytes_of[RECORD_BATCH_OVERHEAD:] == data[RECORD_BATCH_OVERHEAD:]
