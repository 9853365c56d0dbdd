"""Where schemas come from: a directory, or a registry that answers as Confluent's does.

A directory contains

    ID.avsc, ID.proto, ID.json, ID.desc       the schema with that id in the registry
    GUID.avsc, GUID.proto, …                  the schema with that GUID
    SUBJECT.avsc, SUBJECT.proto, …            the only version of a subject
    SUBJECT/VERSION.avsc, …                   one version of a subject; the highest is the latest

`.desc` is a compiled set of Protobuf descriptors (`protoc --descriptor_set_out --include_imports`).
An `.avsc` may refer to named types of other files of the directory, `NAME.avsc` with the full name;
a `.proto` imports files by their path below the directory, and a `.json` refers to them so.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Final, Protocol

from streamlog.decoding.schema_text import SchemaText
from streamlog.errors import InvalidOptionError, UnknownSchemaError
from streamlog.fs.api import FileKind, FileSystem
from streamlog.fs.files import read_file, stat_directory

__all__ = ["MAX_SCHEMA_BYTES", "DirectoryOfSchemas", "Schemas", "open_schemas", "read_schema_file"]

MAX_SCHEMA_BYTES: Final = 16 << 20
_URL: Final = re.compile(r"https?://", re.IGNORECASE)
_SUFFIXES: Final = (".avsc", ".proto", ".json", ".desc")
_COMPILED: Final = ".desc"
MAX_REFERENCES: Final = 500
_IMPORT: Final = re.compile(
    r"""^\s*import\s+(?:public\s+|weak\s+)?["']([^"'\n]+)["']\s*;""", re.MULTILINE
)


class Schemas(Protocol):
    """A source of schemas."""

    def by_id(self, schema_id: int) -> SchemaText:
        """Return the schema with an id.

        Raises:
            UnknownSchemaError: There is none.
            UnavailableError: The source cannot be reached now.
        """
        ...

    def by_guid(self, guid: str) -> SchemaText:
        """Return the schema with a GUID, as 8-4-4-4-12 small digits; raises the same errors."""
        ...

    def latest(self, subject: str) -> SchemaText:
        """Return the latest version of a subject; raises the same errors."""
        ...


def open_schemas(registry: str, *, fs: FileSystem) -> Schemas:
    """Return the schemas of a registry's URL or of a directory.

    Raises:
        InvalidOptionError: No such directory, or a URL of another scheme.
        InvalidRequestError: A library for registries is missing.
    """
    if _URL.match(registry):
        from streamlog.decoding.registry import SchemaRegistry

        return SchemaRegistry(registry)
    found = stat_directory(fs, registry)
    if found is None or found.kind is not FileKind.DIRECTORY:
        raise InvalidOptionError(
            "no such directory of schemas",
            got=registry,
            expected="a directory, or the URL of a registry: http://HOST:PORT",
        )
    return DirectoryOfSchemas(registry, fs=fs)


def read_schema_file(fs: FileSystem, path: str) -> SchemaText:
    """Return the schema in a file.

    Raises:
        FileMissingError: No such file.
        InvalidOptionError: It is not text.
    """
    data = read_file(fs, path, max_size=MAX_SCHEMA_BYTES)
    if path.endswith(_COMPILED):
        return SchemaText("", descriptors=data)
    try:
        return SchemaText(data.decode())
    except UnicodeDecodeError as error:
        raise InvalidOptionError(
            f"a schema must be UTF-8, or Protobuf descriptors in a file named *{_COMPILED}",
            got=f"{path}, byte {error.start}",
        ) from None


class DirectoryOfSchemas:
    """Schemas in the files of a directory.

    Args:
        path: The directory.
        fs: Its file system.
    """

    def __init__(self, path: str, *, fs: FileSystem) -> None:
        self._path, self._fs = path.rstrip("/") or "/", fs

    def by_id(self, schema_id: int) -> SchemaText:
        """Return the schema in `ID.SUFFIX`."""
        return self._named("id", str(schema_id))

    def by_guid(self, guid: str) -> SchemaText:
        """Return the schema in `GUID.SUFFIX`."""
        return self._named("GUID", guid)

    def _named(self, kind: str, name: str) -> SchemaText:
        found = self._find(f"{self._path}/{name}")
        if found is None:
            raise UnknownSchemaError(
                f"unknown schema {kind}",
                path=self._path,
                got=name,
                expected=f"a file {name}.avsc, .proto, .json or .desc",
            )
        return found

    def latest(self, subject: str) -> SchemaText:
        """Return the schema in `SUBJECT.SUFFIX`, or the highest one in `SUBJECT/`."""
        if "/" in subject or subject in (".", ".."):
            raise InvalidOptionError("a subject in a directory has no slash", got=repr(subject))
        found = self._find(f"{self._path}/{subject}")
        if found is None:
            version = self._highest_version(f"{self._path}/{subject}")
            found = None if version is None else self._find(version)
        if found is None:
            raise UnknownSchemaError(
                "unknown subject",
                path=self._path,
                got=repr(subject),
                expected=f"a file {subject}.avsc, .proto, .json or .desc, or {subject}/1.avsc",
            )
        return found

    def _find(self, stem: str) -> SchemaText | None:
        for suffix in _SUFFIXES:
            if self._fs.stat(stem + suffix) is not None:
                found = read_schema_file(self._fs, stem + suffix)
                return found._replace(references=self._references(found, suffix))
        return None

    def _references(self, schema: SchemaText, suffix: str) -> tuple[tuple[str, str], ...]:
        """Return the files that a schema needs, dependencies first."""
        found: dict[str, str] = {}
        self._add_references(schema.text, suffix, found, set())
        return tuple(found.items())

    def _add_references(
        self, text: str, suffix: str, found: dict[str, str], seen: set[str]
    ) -> None:
        for name in _names_in(text, suffix):
            path = f"{self._path}/{name + suffix if suffix == '.avsc' else name}"
            if name in seen or ".." in name.split("/") or self._fs.stat(path) is None:
                continue  # a type or file of the schema itself, or one that the parser knows
            seen.add(name)
            if len(seen) > MAX_REFERENCES:
                raise InvalidOptionError(
                    "a schema refers to too many others", expected=f"at most {MAX_REFERENCES}"
                )
            referred = read_schema_file(self._fs, path).text
            self._add_references(referred, suffix, found, seen)
            found[name] = referred

    def _highest_version(self, directory: str) -> str | None:
        if stat_directory(self._fs, directory) is None:
            return None
        names = (name.rpartition(".") for name in self._fs.list(directory))
        versions = [
            int(stem) for stem, _, suffix in names if f".{suffix}" in _SUFFIXES and stem.isdecimal()
        ]
        return f"{directory}/{max(versions)}" if versions else None


def _names_in(text: str, suffix: str) -> list[str]:
    """Return what a schema may refer to: imported files, or everything that may name a type."""
    if suffix == ".proto":
        return _IMPORT.findall(text)
    if suffix == ".desc":
        return []
    try:
        found = _texts_in if suffix == ".avsc" else _references_in
        return list(dict.fromkeys(found(json.loads(text))))
    except (ValueError, RecursionError):
        return []  # the parser of the format reports what is wrong


def _texts_in(schema: Any) -> Iterator[str]:
    """Yield the texts of a JSON value that could be the names of types."""
    if isinstance(schema, str):
        if "/" not in schema and schema:
            yield schema
    elif isinstance(schema, list):
        for each in schema:
            yield from _texts_in(each)
    elif isinstance(schema, dict):
        for name in ("type", "items", "values", "fields"):
            if name in schema:
                yield from _texts_in(schema[name])


def _references_in(schema: Any) -> Iterator[str]:
    """Yield the documents that a JSON Schema refers to."""
    if isinstance(schema, list):
        for each in schema:
            yield from _references_in(each)
    elif isinstance(schema, dict):
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference.partition("#")[0]:
            yield reference.partition("#")[0]
        for each in schema.values():
            yield from _references_in(each)
