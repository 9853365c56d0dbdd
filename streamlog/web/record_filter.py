"""Which records a search wants, asked of whole Arrow batches.

Records that do not match never become Python objects. A condition on a JSON path is asked in two
steps: a regular expression finds the values that contain the last name of the path next to the
wanted value, and only these are parsed.
"""

import json
import re
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from streamlog.errors import InvalidOptionError

__all__ = ["RecordFilter"]

_STEP: Final = re.compile(r"[^.\[\]]+|\[[0-9]{1,9}\]")
_MAX_TEXT: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFilter:
    """The conditions of a search; empty ones hold for every record.

    Attributes:
        key: The key, as text.
        text: Text that the key or the value contains; case counts.
        json_path: Names and indexes in a JSON value, such as `who.name` or `lines[0].id`.
        json_value: What stands there: a number, `true`, `false`, `null` or text; empty: anything.

    Raises:
        InvalidOptionError: A text is too long, or the path is none.
    """

    key: str = ""
    text: str = ""
    json_path: str = ""
    json_value: str = ""

    def __post_init__(self) -> None:
        for each in (self.key, self.text, self.json_path, self.json_value):
            if len(each) > _MAX_TEXT:
                raise InvalidOptionError(
                    "too long to search for", got=f"{len(each)} characters", expected=_MAX_TEXT
                )
        if self.json_path and (
            "".join(_STEP.findall(self.json_path)) != self.json_path.replace(".", "")
        ):
            raise InvalidOptionError(
                "not a JSON path", got=self.json_path, expected="names and indexes: lines[0].id"
            )
        if self.json_value and not self.json_path:
            raise InvalidOptionError(
                "a JSON value without a path", got=self.json_value, expected="the path to it"
            )

    @property
    def is_empty(self) -> bool:
        """Whether it holds for every record."""
        return not (self.key or self.text or self.json_path)

    def matching(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the records of a batch that match."""
        if self.key:
            batch = _kept(batch, pc.equal(batch["key"], pa.scalar(self.key.encode(), pa.binary())))
        if self.text:
            found = [
                pc.fill_null(pc.match_substring(batch[name], self.text), False)  # noqa: FBT003
                for name in ("key", "value")
            ]
            batch = _kept(batch, pc.or_(*found))
        if self.json_path:
            likely = pc.match_substring_regex(batch["value"], self._likely())
            batch = _kept(batch, likely)
            exact = [self._has_value(value.as_py()) for value in batch["value"]]
            batch = _kept(batch, pa.array(exact, pa.bool_()))
        return batch

    # ---- JSON --------------------------------------------------------------------------------
    def _steps(self) -> list[str | int]:
        steps = _STEP.findall(self.json_path)
        return [int(each[1:-1]) if each.startswith("[") else each for each in steps]

    def _likely(self) -> str:
        """Return a pattern that each matching value contains, as it is usually written."""
        names = [each for each in self._steps() if isinstance(each, str)]
        name = "|".join(map(_escaped, _spellings(names[-1]))) if names else ""
        before = rf"({name})\s*:\s*" if names else ""
        if not self.json_value:
            return before or r"\["
        values = "|".join(map(_escaped, _spellings(self.json_value)))
        if _is_scalar(self.json_value):
            values = f"{values}|{_escaped(self.json_value)}"
        # Behind an index, other elements may stand between the name and the value.
        is_next = isinstance(self._steps()[-1], str)
        return rf"{before}({values})" if is_next else rf"({values})"

    def _has_value(self, value: bytes) -> bool:
        try:
            found: Any = json.loads(value)
            for step in self._steps():
                found = found[step]
        except (ValueError, LookupError, TypeError, RecursionError):
            return False
        if not self.json_value or found == self.json_value:
            return True
        if not _is_scalar(self.json_value):
            return False
        wanted = json.loads(self.json_value)
        return type(wanted) is type(found) and bool(wanted == found)


def _kept(batch: pa.RecordBatch, mask: pa.Array) -> pa.RecordBatch:
    return batch.filter(mask)


def _spellings(text: str) -> set[str]:
    """Return how JSON writes a text, with and without escapes."""
    return {json.dumps(text), json.dumps(text, ensure_ascii=False)}


def _escaped(text: str) -> str:
    return re.escape(text)


def _is_scalar(text: str) -> bool:
    try:
        return not isinstance(json.loads(text), dict | list | str)
    except ValueError:
        return False
