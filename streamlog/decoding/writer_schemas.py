"""The writer's schemas of a registry, kept for the whole process."""

import threading
from typing import Final

from streamlog.decoding.schema_text import SchemaText
from streamlog.decoding.schemas import Schemas, open_schemas
from streamlog.errors import UnknownSchemaError
from streamlog.fs.api import FileSystem

__all__ = ["WriterSchemas"]

_MAX_KEPT: Final = 10_000
_MAX_UNKNOWN: Final = 100  # ids that a registry is asked for in vain

_kept: dict[tuple[str, int | str], SchemaText] = {}
_lock = threading.Lock()


class WriterSchemas:
    """Finds schemas by id; each is fetched once per process, as it never changes.

    Args:
        registry: The URL or directory; None if all values have the reader's schema.
        reader: The reader's schema.
        fs: Where directories are.
    """

    def __init__(self, registry: str | None, reader: SchemaText, fs: FileSystem) -> None:
        self._registry, self._reader, self._fs = registry, reader, fs
        self._schemas: Schemas | None = None
        self._unknown: dict[int | str, str] = {}

    def find(self, schema: int | str) -> SchemaText | str:
        """Return the schema with an id, or why there is none.

        Args:
            schema: Its id, or its GUID in the usual form.

        Raises:
            UnavailableError: The registry cannot be reached now.
            InvalidRequestError: It refuses the request.
        """
        if self._registry is None:
            return self._reader
        key = self._registry, schema
        if key in _kept:
            return _kept[key]
        if schema in self._unknown:
            return self._unknown[schema]
        kind = f"unknown schema {'GUID' if isinstance(schema, str) else 'id'}"
        if len(self._unknown) >= _MAX_UNKNOWN:
            # The same text for all of them: decoders keep each text.
            return f"{kind}: not asked for after {_MAX_UNKNOWN} unknown ones"
        if self._schemas is None:
            self._schemas = open_schemas(self._registry, fs=self._fs)
        try:
            if isinstance(schema, str):
                found = self._schemas.by_guid(schema)
            else:
                found = self._schemas.by_id(schema)
        except UnknownSchemaError:
            self._unknown[schema] = f"{kind} {schema} in {self._registry}"
            return self._unknown[schema]
        with _lock:
            if len(_kept) >= _MAX_KEPT:
                _kept.clear()
            _kept[key] = found
        return found
