"""The cleaner's kernels beside their twins: hashing, the offset map, filtering batches."""

from hashlib import md5
from random import Random, SystemRandom

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.binary.arrays import as_source
from streamlog.errors import InvalidConfigError
from streamlog.log.cleaner import map_kernels as k
from streamlog.log.cleaner.offset_map import BYTES_PER_KEY, OffsetMap
from streamlog.records import filter_kernels as f
from streamlog.records.batch import scan_batches
from streamlog.records.builder import BatchBuilder
from streamlog.records.filter import Selection, filter_batches, locate
from streamlog.records.layout import RECORD_BATCH_OVERHEAD
from streamlog.records.record import Header, Record
from streamlog.records.reference import Batch, Kept, Plain, rewrite_batches
from streamlog.records.slot import SLOT_KEY, SLOT_KEY_SIZE, SLOT_OFFSET, SLOT_WIDTH
from streamlog.records.slots import RecordSlots

KEYS = st.lists(st.none() | st.binary(max_size=3), max_size=40)


def slots_of(keys: list[bytes | None], first_offset: int = 0) -> RecordSlots:
    """Return records that have keys and offsets and nothing else."""
    slots = np.zeros((len(keys), SLOT_WIDTH), np.int64)
    data = b""
    for row, key in enumerate(keys):
        slots[row, SLOT_OFFSET] = first_offset + row
        slots[row, SLOT_KEY] = len(data)
        slots[row, SLOT_KEY_SIZE] = -1 if key is None else len(key)
        data += key or b""
    rows = np.ones(len(keys), np.int64)
    return RecordSlots(source=as_source(data + bytes(8)), slots=slots, rows=rows)


@given(KEYS, st.binary(min_size=16, max_size=16))
def test_keys_are_hashed_as_the_twin_hashes_them(keys: list[bytes | None], secret: bytes) -> None:
    records = slots_of(keys)
    hashes = np.zeros((len(keys), 2), np.int64)
    low, high = np.frombuffer(secret, "<i8").tolist()
    assert k.hash_keys(records.source, records.slots, low, high, hashes) == 0
    for found, expected in zip(hashes, k.plain_hash_keys(keys, secret), strict=True):
        assert expected is None or found.astype("<i8").tobytes() == expected


@given(KEYS, KEYS, st.integers(1, 12))
def test_the_map_knows_what_a_dictionary_knows(
    keys: list[bytes | None], asked: list[bytes | None], capacity: int
) -> None:
    offset_map = OffsetMap(memory=(capacity + 1) * BYTES_PER_KEY, load_factor=1.0, random=Random(5))
    known: dict[bytes, int] = {}
    wanted = np.array([key is not None for key in keys], np.bool_)
    looked_at = k.plain_put_offsets(known, list(enumerate(keys)), capacity)
    assert offset_map.put(slots_of(keys), wanted) == looked_at
    assert (offset_map.size, offset_map.is_full) == (len(known), len(known) == capacity)
    assert offset_map.latest_offset == max(known.values(), default=-1)
    assert offset_map.find(slots_of(asked)).tolist() == k.plain_find_offsets(known, asked)


def test_keys_whose_search_begins_at_one_place_are_kept_apart() -> None:
    """Of 500 keys in 501 places most collide with another one, at the table's end too."""
    keys: list[bytes | None] = [b"%d" % number for number in range(500)]
    offset_map = OffsetMap(memory=501 * BYTES_PER_KEY, load_factor=1.0, random=Random(7))
    assert offset_map.put(slots_of(keys), np.ones(500, np.bool_)) == 500
    assert offset_map.find(slots_of(keys)).tolist() == list(range(500))
    assert offset_map.utilization == 500 / 501


def test_memory_for_no_key_is_refused() -> None:
    with pytest.raises(InvalidConfigError, match="no room for a single key"):
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
    offset_map.put(records, np.ones(2, np.bool_))
    assert offset_map.find(records).tolist() == [0, 1]


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
    records = locate(buffer, table, path="", position=0)
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
