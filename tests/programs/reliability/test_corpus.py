"""The inputs of the corpus get their known answers."""

import logging
from collections import Counter

import pytest

from tests.programs.reliability.corpus import ALL, SOUND, answer, kept

CORPUS = list(kept())


@pytest.mark.parametrize("parser", ALL)
def test_every_input_gets_its_known_answer(parser: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    mine = [each for each in CORPUS if each.parser == parser]
    assert len(mine) >= 2
    for each in mine:
        assert answer(parser, each.data) == each.answer, each.data.hex()


def test_every_answer_is_there_once() -> None:
    assert Counter((each.parser, each.answer) for each in CORPUS).most_common(1)[0][1] == 1


def test_sound_inputs_are_parsed() -> None:
    for parser, data in SOUND.items():
        assert "Error" not in answer(parser, data), parser
