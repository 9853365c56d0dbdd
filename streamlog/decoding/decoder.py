"""What to decode values with: a specification, and the same with the reader's schema at hand.

A `DecoderSpec` is what a user asks for. `resolve` reads the schemas it names, once; the result
contains texts only, so it can be sent to other processes, which open a decoder from it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from streamlog.decoding.decoded import ValueDecoder
from streamlog.decoding.errors import missing_schema
from streamlog.decoding.schema_text import SchemaText
from streamlog.decoding.schemas import open_schemas, read_schema_file
from streamlog.decoding.writer_schemas import WriterSchemas
from streamlog.errors import InvalidOptionError
from streamlog.fs.api import FileSystem
from streamlog.fs.local import LocalFileSystem

__all__ = ["DecoderSpec", "Format", "ResolvedSpec", "open_decoder"]

_FILE_MARK: Final = "@"  # before the name of a file that contains a schema


class Format(str, Enum):
    """How values are encoded."""

    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"

    @classmethod
    def of(cls, name: "str | Format", option: str = "format") -> "Format":
        """Return the format of that name.

        Args:
            name: `json`, `avro` or `protobuf`, in any case.
            option: What the user calls it, for the error.

        Raises:
            InvalidOptionError: Another name.
        """
        try:
            return cls(name.lower())
        except ValueError:
            raise InvalidOptionError(
                f"invalid value for {option}",
                got=repr(name),
                expected=", ".join(each.value for each in cls),
            ) from None

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderSpec:
    """What to decode values with: plain values only, no connection.

    Attributes:
        format: The encoding of the values.
        registry: URL of a schema registry (http or https), or a directory of schemas.
        subject: The subject in the registry whose latest version is the reader's schema.
        schema: The reader's schema: its text, or `@FILE`. For JSON: a Spark DDL such as
            `id BIGINT, name STRING`, Spark's JSON form of a schema, or a JSON Schema.
        message: Full name of the Protobuf message; by default the first one of the schema.
        is_framed: Whether an id says which schema wrote a value, as Confluent's serializers have
            it: a zero byte and an id in front of the value, for Protobuf also the indexes of the
            message, or a GUID in a header of the record. In JSON it is detected.
        field: What the values are, `key` or `value`.
    """

    format: Format
    registry: str | None = None
    subject: str | None = None
    schema: str | None = None
    message: str | None = None
    is_framed: bool = True
    field: str = "value"

    def resolve(self, fs: FileSystem | None = None) -> "ResolvedSpec":
        """Return the specification with the text of the reader's schema.

        Args:
            fs: Where files and directories of schemas are.

        Raises:
            InvalidOptionError: The schema is missing or invalid, or an option does not fit.
            UnknownSchemaError: The registry does not know the subject.
            StorageError: A file cannot be read.
            RegistryError: The registry cannot be reached; retry later.
        """
        files = fs or LocalFileSystem()
        resolved = ResolvedSpec(spec=self, reader=self._reader_schema(files))
        open_decoder(resolved, files)  # an invalid schema is an error now, not in a task
        return resolved

    def _reader_schema(self, fs: FileSystem) -> SchemaText:
        if self.schema is not None:
            if self.schema.startswith(_FILE_MARK):
                return read_schema_file(fs, self.schema[len(_FILE_MARK) :])
            return SchemaText(self.schema)
        if self.registry is None or self.subject is None:
            raise missing_schema(self.format.value)
        return open_schemas(self.registry, fs=fs).latest(self.subject)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedSpec:
    """A specification with everything that its decoder needs to begin: texts, no connection.

    Attributes:
        spec: What was asked for.
        reader: The reader's schema; None: JSON of any form, which only text can hold.
        writers: Writer's schemas that are already known, by id.
    """

    spec: DecoderSpec
    reader: SchemaText | None
    writers: Mapping[int, SchemaText] = field(default_factory=dict)


def open_decoder(resolved: ResolvedSpec, fs: FileSystem | None = None) -> ValueDecoder:
    """Return a decoder for a specification that was resolved, perhaps in another process.

    Args:
        resolved: What to decode with.
        fs: Where directories of schemas are; the local disk by default.

    Raises:
        InvalidOptionError: The reader's schema is invalid.
        InvalidRequestError: A library for the format is missing.
    """
    spec, reader = resolved.spec, resolved.reader
    if reader is None:
        from streamlog.decoding.any_json import AnyJsonDecoder

        return AnyJsonDecoder()
    if spec.format is Format.JSON:
        from streamlog.decoding.json_values import JsonDecoder

        return JsonDecoder(reader)
    writers = WriterSchemas(spec.registry, reader, fs or LocalFileSystem())
    if spec.format is Format.PROTOBUF:
        from streamlog.decoding.protobuf_values import ProtobufDecoder

        return ProtobufDecoder(
            reader, spec.message, writers, is_framed=spec.is_framed, field=spec.field
        )
    from streamlog.decoding.avro_values import AvroDecoder

    return AvroDecoder(reader, writers, is_framed=spec.is_framed, field=spec.field)
