"""The text of a schema and of those it refers to."""

from typing import NamedTuple

__all__ = ["SchemaText"]


class SchemaText(NamedTuple):
    """A schema as a registry or a file has it.

    Attributes:
        text: The schema; empty if there are compiled descriptors.
        references: Name and text of each schema that it refers to, dependencies first: full names
            of Avro types, paths of imported Protobuf files.
        descriptors: A serialized `FileDescriptorSet`.
    """

    text: str
    references: tuple[tuple[str, str], ...] = ()
    descriptors: bytes | None = None
