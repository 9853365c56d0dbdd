"""Protobuf schemas: `.proto` text compiled by protoc, as part of grpcio-tools, or descriptors.

protoc runs in a process of its own: it reports errors on its standard error only, and a text that
makes it crash costs nothing else. Some clients register a `FileDescriptorProto` in base64 instead
of a text, Confluent's for Python among them, and some registries return it as it is.
"""

import base64
import re
import subprocess
import sys
from collections.abc import Sequence
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, NamedTuple

from streamlog.decoding.errors import missing_extra
from streamlog.decoding.schema_text import SchemaText
from streamlog.errors import InvalidOptionError, UnavailableError
from streamlog.fs.scratch import scratch_directory

__all__ = ["ProtobufSchema", "parse_protobuf"]

_MAIN: Final = "schema.proto"
_RESULT: Final = "descriptors"
_GOOGLES: Final = "google/protobuf/"
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]+={0,2}\s*")
_TIMEOUT_S: Final = 60
_SHOWN_LINES: Final = 3


class ProtobufSchema(NamedTuple):
    """The files of a schema.

    Attributes:
        pool: A `google.protobuf.descriptor_pool.DescriptorPool` with all of them.
        main: The `FileDescriptorProto` of the schema itself.
    """

    pool: Any
    main: Any

    def message(self, name: str | None) -> Any:
        """Return the descriptor of a message.

        Args:
            name: Its full name, or None for the first one of the schema.

        Raises:
            InvalidOptionError: There is none.
        """
        known = self.names()
        if name is None and not known:
            raise InvalidOptionError("the Protobuf schema has no message")
        try:
            return self.pool.FindMessageTypeByName(known[0] if name is None else name)
        except KeyError:
            raise InvalidOptionError(
                "no such message in the Protobuf schema",
                got=repr(name),
                expected=" or ".join(known[:10]) or None,
            ) from None

    def names(self) -> list[str]:
        """Return the full names of the outermost messages of the schema."""
        return [self._full(message.name) for message in self.main.message_type]

    def name_at(self, indexes: Sequence[int]) -> str | None:
        """Return the name of the message at the indexes of Confluent's header, if there is one."""
        found, names = self.main.message_type, []
        for index in indexes:
            if not 0 <= index < len(found):
                return None
            names.append(found[index].name)
            found = found[index].nested_type
        return self._full(".".join(names))

    def _full(self, name: str) -> str:
        return f"{self.main.package}.{name}" if self.main.package else name


@lru_cache(maxsize=256)
def parse_protobuf(text: SchemaText) -> ProtobufSchema:
    """Return the schema of a text or of compiled descriptors.

    Raises:
        InvalidOptionError: protoc refuses it, or the descriptors are incomplete.
        InvalidRequestError: A library is missing.
        UnavailableError: protoc did not end.
    """
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool
        from google.protobuf.message import DecodeError
    except ImportError as error:
        raise missing_extra("decoding Protobuf", error) from error
    data = text.descriptors
    try:
        if data is None:
            data = _of_base64(text) or _compile(text)
        files = descriptor_pb2.FileDescriptorSet.FromString(data).file
        pool = descriptor_pool.DescriptorPool()
        for each in files:
            pool.Add(each)
        for each in files:
            pool.FindFileByName(each.name)  # only now is it checked
    except (DecodeError, KeyError, TypeError) as error:
        raise InvalidOptionError(
            "invalid Protobuf descriptors",
            got=" ".join(str(error).split()),
            expected="what protoc --descriptor_set_out --include_imports writes",
        ) from error
    if not files:
        raise InvalidOptionError("the Protobuf descriptors are empty")
    return ProtobufSchema(pool, files[-1])


def _of_base64(text: SchemaText) -> bytes | None:
    """Return the descriptors of files in base64; None if the schema is a text.

    Raises:
        KeyError: A file is neither among the references nor one of Google's.
    """
    from google.protobuf import descriptor_pb2

    main = _file_of_base64(text.text)
    if main is None:
        return None
    found = descriptor_pb2.FileDescriptorSet()
    known: set[str] = set()
    files = []
    for name, content in text.references:
        file = _file_of_base64(content)
        if file is not None:
            file.name = name  # by which it is imported
            files.append(file)
    for file in (*files, main):
        for dependency in file.dependency:
            if dependency.startswith(_GOOGLES) and dependency not in known:
                known.add(dependency)
                _googles(dependency).CopyToProto(found.file.add())
        found.file.append(file)
    return bytes(found.SerializeToString())


def _file_of_base64(text: str) -> Any | None:
    """Return the `FileDescriptorProto` that a text is in base64, if it is one."""
    from google.protobuf import descriptor_pb2
    from google.protobuf.message import DecodeError

    if not _BASE64.fullmatch(text):
        return None
    try:
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (ValueError, DecodeError):
        return None
    return file if file.name else None


def _googles(name: str) -> Any:
    """Return the descriptor of one of the files that come with Protobuf."""
    stem = name[len(_GOOGLES) :].removesuffix(".proto")
    try:
        return import_module(f"google.protobuf.{stem}_pb2").DESCRIPTOR
    except ImportError:
        raise KeyError(name) from None


def _compile(text: SchemaText) -> bytes:
    """Return the descriptors of a text and of what it imports."""
    if find_spec("grpc_tools") is None:
        raise missing_extra(
            "compiling a .proto", ModuleNotFoundError("no grpc_tools", name="grpc_tools")
        )
    texts = {**dict(text.references), _MAIN: text.text}
    files = {name: content.encode() for name, content in texts.items()}
    with scratch_directory(files) as directory:
        _run_protoc(str(directory), str(directory / _RESULT))
        return (directory / _RESULT).read_bytes()


def _run_protoc(directory: str, result: str) -> None:
    command = [
        *(sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={directory}"),
        *("--include_imports", f"--descriptor_set_out={result}", _MAIN),
    ]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError("protoc did not run to its end", got=type(error).__name__) from error
    if done.returncode:
        lines = done.stderr.replace(f"{directory}/", "").splitlines()
        raise InvalidOptionError(
            "invalid Protobuf schema",
            got="; ".join(lines[:_SHOWN_LINES]) or f"exit code {done.returncode}",
        )
