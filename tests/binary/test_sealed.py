"""Sealed files: damage, types, and checks of every value."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.binary.crc import crc32c
from streamlog.binary.sealed import SealedValues, mended, seal, unseal
from streamlog.errors import CorruptCheckpointError

VALUES = st.dictionaries(st.text(max_size=5), st.integers(0, 2**62) | st.text(max_size=5))
SAMPLE = seal("decision", {"app": "q/ü", "version": 7, "list": [{"a": 1}], "none": None})


@given(VALUES)
def test_unseal_inverts_seal(values: dict[str, int | str]) -> None:
    found = unseal("ledger", seal("ledger", values), "/x")
    for name, value in values.items():
        assert (found.text(name) if isinstance(value, str) else found.integer(name)) == value


def test_a_sealed_file_can_be_read_by_people() -> None:
    lines = SAMPLE.decode("ascii").splitlines()
    assert lines[0] == lines[-3] == "streamlog decision 1"
    assert json.loads(lines[1])["app"] == "q/ü"
    assert lines[1] == lines[-2]


def test_a_flipped_bit_anywhere_takes_no_more_than_one_copy() -> None:
    said = unseal("decision", SAMPLE, "/x").text("app")
    for bit in range(8 * len(SAMPLE)):
        damaged = bytearray(SAMPLE)
        damaged[bit // 8] ^= 1 << bit % 8
        assert unseal("decision", bytes(damaged), "/x").text("app") == said
        assert mended(bytes(damaged)) == SAMPLE


@pytest.mark.parametrize("size", [512, 4096])
@pytest.mark.parametrize("fill", [b"\0", b"\xff", b"x", b"\n"])
def test_a_lost_sector_or_page_takes_no_more_than_one_copy(size: int, fill: bytes) -> None:
    content = seal("ledger", {"app": "x" * 9000})
    for start in range(0, len(content), size):
        damaged = content[:start] + (fill * size)[: len(content) - start] + content[start + size :]
        assert unseal("ledger", damaged, "/x").text("app") == "x" * 9000
        assert mended(damaged) == (None if damaged == content else content)


def test_damage_to_both_copies_is_found() -> None:
    second = SAMPLE.rindex(b"streamlog ")
    for at in range(second, len(SAMPLE)):
        damaged = bytearray(SAMPLE)
        damaged[at] ^= 1
        damaged[at - second] ^= 1
        with pytest.raises(CorruptCheckpointError):
            unseal("decision", bytes(damaged), "/x")
        assert mended(bytes(damaged)) is None


def test_a_cut_leaves_the_first_copy_or_nothing() -> None:
    first = SAMPLE.index(b"\n\n") + 1
    for size in range(len(SAMPLE)):
        if size < first:
            with pytest.raises(CorruptCheckpointError):
                unseal("decision", SAMPLE[:size], "/x")
        else:
            assert unseal("decision", SAMPLE[:size], "/x").integer("version") == 7


def test_the_single_copy_of_an_earlier_version_is_whole() -> None:
    first = SAMPLE[: SAMPLE.index(b"\n\n") + 1]
    assert unseal("decision", first, "/x").integer("version") == 7
    assert mended(first) is None and mended(SAMPLE) is None
    assert mended(first + b"\n") == SAMPLE


def sealed_by_hand(body: bytes) -> bytes:
    return body + b"crc32c %08x\n" % crc32c(body)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"streamlog ledger 1\n{}\n", "not a decision file"),
        (b"streamlog decision 2\n{}\n", "this version"),
        (b"streamlog decision 1\n{\n", "no JSON"),
        (b"streamlog decision 1\n[]\n", "malformed"),
        (b"streamlog decision 1\n" + b"[" * 100_000 + b"\n", "no JSON"),
        (b'streamlog decision 1\n{"n":' + b"9" * 10_000 + b"}\n", "no JSON"),
        (b"", "is damaged"),
    ],
    ids=["kind", "version", "syntax", "list", "depth", "digits", "empty"],
)
def test_whole_files_that_are_wrong_are_refused(body: bytes, words: str) -> None:
    with pytest.raises(CorruptCheckpointError, match=words):
        unseal("decision", sealed_by_hand(body), "/x")


WRONG = SealedValues({"t": 1, "i": "x", "b": 1, "f": 1.0, "n": -1, "o": [1], "l": {}}, "/x")


@pytest.mark.parametrize(
    "take",
    [
        lambda: WRONG.text("t"),
        lambda: WRONG.text("missing"),
        lambda: WRONG.integer("i"),
        lambda: WRONG.integer("f"),
        lambda: WRONG.integer("n"),
        lambda: WRONG.integer("missing"),
        lambda: WRONG.flag("b"),
        lambda: WRONG.objects("o"),
        lambda: WRONG.objects("l"),
        lambda: WRONG.integers("o", 1),
        lambda: WRONG.nested("t"),
        lambda: SealedValues({"r": [[1, True]]}, "/x").integers("r", 2),
        lambda: SealedValues({"r": [[1]]}, "/x").integers("r", 2),
        lambda: SealedValues({"r": True}, "/x").integer("r"),
        lambda: SealedValues({"r": 2**63}, "/x").integer("r"),
    ],
)
def test_a_value_of_the_wrong_kind_is_a_typed_error(take: object) -> None:
    with pytest.raises(CorruptCheckpointError, match="malformed"):
        take()
