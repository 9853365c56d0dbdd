"""Sealed files: whole, of their kind, and nothing taken on trust."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.binary.crc import crc32c
from streamlog.errors import CorruptCheckpointError
from streamlog.log.commits.sealed import SealedValues, seal, unseal

VALUES = st.dictionaries(st.text(max_size=5), st.integers(0, 2**62) | st.text(max_size=5))
SAMPLE = seal("decision", {"app": "q/ü", "version": 7, "list": [{"a": 1}], "none": None})


@given(VALUES)
def test_unseal_inverts_seal(values: dict[str, int | str]) -> None:
    found = unseal("ledger", seal("ledger", values), "/x")
    for name, value in values.items():
        assert (found.text(name) if isinstance(value, str) else found.integer(name)) == value


def test_a_sealed_file_can_be_read_by_people() -> None:
    lines = SAMPLE.decode("ascii").splitlines()
    assert lines[0] == "streamlog decision 1"
    assert json.loads(lines[1])["app"] == "q/ü"
    assert len(lines) == 3


def test_every_flipped_bit_is_found() -> None:
    for bit in range(8 * len(SAMPLE)):
        damaged = bytearray(SAMPLE)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptCheckpointError):
            unseal("decision", bytes(damaged), "/x")


def test_every_cut_is_found() -> None:
    for size in range(len(SAMPLE)):
        with pytest.raises(CorruptCheckpointError):
            unseal("decision", SAMPLE[:size], "/x")


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
        (b"", "not a decision file"),
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
