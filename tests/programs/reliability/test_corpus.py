"""Hostile bytes that are kept get the answers that they are known to get."""

import logging
from collections import Counter

import pytest

from tests.programs.reliability.corpus import ALL, SOUND, answer, kept

CORPUS = list(kept())


@pytest.mark.parametrize("parser", ALL)
def test_every_input_gets_its_answer(parser: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    mine = [each for each in CORPUS if each.parser == parser]
    assert len(mine) >= 2
    for each in mine:
        assert answer(parser, each.data) == each.answer, each.data.hex()


def test_no_answer_stands_twice() -> None:
    assert Counter((each.parser, each.answer) for each in CORPUS).most_common(1)[0][1] == 1


def test_what_is_sound_is_understood() -> None:
    for parser, data in SOUND.items():
        assert "Error" not in answer(parser, data), parser
