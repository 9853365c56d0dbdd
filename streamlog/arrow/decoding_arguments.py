"""The arguments of `read_table` and `read_arrow` that decode keys and values."""

from dataclasses import dataclass
from typing import Final, TypeAlias

from streamlog.arrow.decoded_columns import Decoding, OnBadRecord
from streamlog.decoding.decoder import DecoderSpec, Format, ResolvedSpec
from streamlog.errors import InvalidOptionError

__all__ = ["DecodingArguments"]

_FIELDS: Final = ("key", "value")
_Pair: TypeAlias = tuple[str | None, str | None]  # of keys and of values
_FRAMINGS: Final = ("confluent", "none")


@dataclass(frozen=True, slots=True)
class DecodingArguments:
    """What a reader decodes, as the caller wrote it.

    Attributes:
        formats: `json`, `avro` or `protobuf`, of keys and of values; None: bytes.
        schemas: The reader's schema of both.
        subjects: The subject of the reader's schema of both.
        messages: The name of the Protobuf message of both.
        registry: The URL of a schema registry, or a directory of schemas.
        framing: `confluent` or `none`.
        mode: `PERMISSIVE` or `FAILFAST`, in any case.
    """

    formats: _Pair
    schemas: _Pair
    subjects: _Pair
    messages: _Pair
    registry: str | None
    framing: str
    mode: str

    def resolve(self, topic: str | None, *, allows_any_json: bool = False) -> Decoding | None:
        """Return how to decode, with the reader's schemas; None if nothing is decoded.

        Args:
            topic: The topic, whose subjects are TOPIC-key and TOPIC-value.
            allows_any_json: Whether JSON needs no schema, as it stays text.

        Raises:
            InvalidOptionError: An argument is invalid, or belongs to a format that is missing.
            UnknownSchemaError: The registry does not know the subject.
            RegistryError: It cannot be reached.
        """
        mode = self.mode.upper()
        if mode not in OnBadRecord.__members__:
            raise _invalid("mode", self.mode, "PERMISSIVE or FAILFAST")
        if self.framing not in _FRAMINGS:
            raise _invalid("schema_framing", self.framing, " or ".join(_FRAMINGS))
        key, value = (self._spec(field, topic) for field in _FIELDS)
        if key is None and value is None:
            if self.registry is not None:
                raise _without_format("schema_registry", "value_format or key_format")
            return None

        def resolved(spec: DecoderSpec | None) -> ResolvedSpec | None:
            if spec is None:
                return None
            if allows_any_json and spec.format is Format.JSON and spec.schema is None:
                return ResolvedSpec(spec=spec, reader=None)
            return spec.resolve()

        return Decoding(key=resolved(key), value=resolved(value), on_bad_record=OnBadRecord[mode])

    def _spec(self, field: str, topic: str | None) -> DecoderSpec | None:
        name, schema, subject, message = (
            each[_FIELDS.index(field)]
            for each in (self.formats, self.schemas, self.subjects, self.messages)
        )
        if name is None:
            for what, given in (("schema", schema), ("subject", subject), ("message", message)):
                if given is not None:
                    raise _without_format(f"{field}_{what}", f"{field}_format")
            return None
        kind = Format.of(name, f"{field}_format")
        if schema is not None and subject is not None:
            raise InvalidOptionError(
                f"{field}_schema and {field}_subject both name the reader's schema",
                expected="one of them",
            )
        if schema is None and subject is None and self.registry:
            if topic is None:
                raise InvalidOptionError(
                    f"the subject of {field}s is unknown", expected=f"a topic, or {field}_subject="
                )
            subject = f"{topic}-{field}"
        return DecoderSpec(
            format=kind,
            registry=self.registry,
            subject=subject,
            schema=schema,
            message=message,
            is_framed=self.framing == "confluent",
            field=field,
        )


def _invalid(name: str, got: str, expected: str) -> InvalidOptionError:
    return InvalidOptionError(f"invalid value for {name}", got=repr(got), expected=expected)


def _without_format(name: str, needed: str) -> InvalidOptionError:
    return InvalidOptionError(f"{name} requires {needed}", hint=f'{needed.split(" ")[0]}="avro"')
