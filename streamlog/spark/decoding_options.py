"""The options that decode keys and values: `valueFormat`, `schemaRegistry` and those beside them.

Parsing them asks no registry. `resolve` does, once, in the process in which Spark asks for the
schema; its result goes to the readers and the tasks of that DataFrame.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from streamlog.arrow.log_view import TopicChoice
from streamlog.errors import InvalidOptionError
from streamlog.query.checkpoint import local_path
from streamlog.spark.options import parse_choice

if TYPE_CHECKING:
    from streamlog.arrow.decoded_columns import Decoding
    from streamlog.decoding.decoder import DecoderSpec

__all__ = ["DecodingOptions", "registry_place"]

_FIELDS: Final = ("key", "value")
_ABOUT_A_FIELD: Final = ("Schema", "Subject", "Message")
_FOR_ANY_FIELD: Final = ("schemaRegistry", "schemaFraming", "mode")
_FILE_MARK: Final = "@"


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodingOptions:
    """What a read decodes, as the user wrote it.

    Attributes:
        key: How keys are decoded; None: they are not.
        value: How values are decoded; None: they are not.
        fails_fast: Whether a record that cannot be decoded is an error of the query.
    """

    key: "DecoderSpec | None"
    value: "DecoderSpec | None"
    fails_fast: bool

    @classmethod
    def parse(cls, given: Mapping[str, str], choice: TopicChoice) -> "DecodingOptions | None":
        """Return what the options ask for; None if they name no format.

        Args:
            given: Checked options.
            choice: The topics of the read; a single one gives its name to subjects.

        Raises:
            InvalidOptionError: An option is invalid, or has no format it belongs to.
        """
        mode = parse_choice(given, "mode", ("permissive", "failfast"), default="permissive")
        for field in _FIELDS:
            for suffix in _ABOUT_A_FIELD:
                if f"{field}{suffix}" in given and f"{field}Format" not in given:
                    raise _without_format(f"{field}{suffix}", f"{field}Format")
        if not any(f"{field}Format" in given for field in _FIELDS):
            for name in _FOR_ANY_FIELD:
                if name in given:
                    raise _without_format(name, "valueFormat or keyFormat")
            return None
        return cls(
            key=_parse_spec(given, "key", choice),
            value=_parse_spec(given, "value", choice),
            fails_fast=mode == "failfast",
        )

    def resolve(self) -> "Decoding":
        """Return how to decode, with the reader's schemas as they are now.

        Raises:
            InvalidOptionError: A schema is missing or invalid.
            InvalidRequestError: A subject is unknown, or a library is missing.
            UnavailableError: A registry cannot be reached.
        """
        from streamlog.arrow.decoded_columns import Decoding, OnBadRecord

        return Decoding(
            key=None if self.key is None else self.key.resolve(),
            value=None if self.value is None else self.value.resolve(),
            on_bad_record=OnBadRecord.FAILFAST if self.fails_fast else OnBadRecord.PERMISSIVE,
        )


def registry_place(registry: str | None, option: str = "schemaRegistry") -> str | None:
    """Return the URL of a registry, or the absolute path of a directory of schemas.

    Raises:
        InvalidOptionError: A URL with credentials, which Spark would show in its plans and logs;
            or a file system that is not local.
    """
    if registry is None:
        return None
    parts = urlsplit(registry)
    if parts.scheme.lower() in ("http", "https"):
        if "@" in parts.netloc:
            raise InvalidOptionError(
                f"{option} must have no credentials: Spark shows options in plans and logs",
                expected="https://HOST:PORT, and the credentials in the environment",
            )
        return registry
    path = local_path(registry)
    if path is None:
        raise InvalidOptionError(
            f"{option} is neither a registry nor a local directory",
            got=registry,
            expected="http://HOST:PORT, https://HOST:PORT, or a directory",
        )
    return path


def _without_format(name: str, needed: str) -> InvalidOptionError:
    return InvalidOptionError(
        f"option {name} requires {needed}", hint='.option("valueFormat", "avro")'
    )


def _parse_spec(given: Mapping[str, str], field: str, choice: TopicChoice) -> "DecoderSpec | None":
    if f"{field}Format" not in given:
        return None
    from streamlog.decoding.decoder import DecoderSpec, Format

    kind = Format.of(given[f"{field}Format"].strip(), f"option {field}Format")
    schema = given.get(f"{field}Schema")
    registry = registry_place(given.get("schemaRegistry"))
    subject = given.get(f"{field}Subject")
    if schema is not None and subject is not None:
        raise InvalidOptionError(
            f"options {field}Schema and {field}Subject both name the reader's schema",
            expected="one of them",
        )
    if schema is None and subject is None and registry is not None:
        subject = f"{_single_topic(choice, field)}-{field}"
    framing = parse_choice(given, "schemaFraming", ("confluent", "none"), default="confluent")
    return DecoderSpec(
        format=kind,
        registry=registry,
        subject=subject,
        schema=None if schema is None else _absolute(schema),
        message=given.get(f"{field}Message"),
        is_framed=framing == "confluent",
        field=field,
    )


def _single_topic(choice: TopicChoice, field: str) -> str:
    topics = {*choice.topics, *(each.topic for each in choice.partitions)}
    if len(topics) != 1:
        raise InvalidOptionError(
            f"option {field}Subject is missing, and the read is not of a single topic",
            got=", ".join(sorted(topics)) or "a pattern",
            expected=f"{field}Subject or {field}Schema",
        )
    return topics.pop()


def _absolute(schema: str) -> str:
    """Return the schema; the name of a file becomes absolute, since Spark's processes differ."""
    if not schema.startswith(_FILE_MARK):
        return schema
    return _FILE_MARK + (local_path(schema[len(_FILE_MARK) :]) or schema[len(_FILE_MARK) :])
