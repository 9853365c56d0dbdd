"""The text of errors in Spark's and in Python's tracebacks."""

import pickle

from streamlog.errors import StreamLogError


def test_the_text_ends_with_the_hint() -> None:
    error = StreamLogError("it failed", path="/a", position=3, got=1, expected=2)
    assert str(error) == "it failed in /a at byte 3: got 1, expected 2"
    error.hint = "did you mean that?"
    assert str(error) == "it failed in /a at byte 3: got 1, expected 2; did you mean that?"
    assert error.sentence == "it failed in /a at byte 3: got 1, expected 2"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
