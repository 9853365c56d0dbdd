"""The options that decode keys and values, as `cat` and `ui` take them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from streamlog.decoding.as_json import FieldDecoder
    from streamlog.decoding.decoder import Format

__all__ = ["field_decoders"]

_FIELDS: Final = ("key", "value")


def field_decoders(
    decode: tuple[str, ...], given: Mapping[str, str | None]
) -> "dict[str, FieldDecoder]":
    """Return the decoders of `key` and `value` that the options ask for.

    Args:
        decode: `--decode`, as often as it is given.
        given: The options beside it, by name; None for those that are not given.

    Raises:
        UsageError: An unknown field or format, a field twice, or an option without `--decode`.
        InvalidOptionError: There is no schema to decode with.
    """
    if not decode:
        for name, value in given.items():
            if value is not None and name != "schema_framing":
                raise click.UsageError(f"--{name.replace('_', '-')} requires --decode")
        return {}
    from streamlog.decoding.as_json import FieldDecoder  # numba, and a library of the format

    found = {
        name: FieldDecoder(
            kind=kind,
            registry=given["schema_registry"],
            schema=given.get(f"{name}_schema"),
            message=given.get(f"{name}_message"),
            is_framed=given.get("schema_framing", "confluent") == "confluent",
        )
        for name, kind in _parse(decode).items()
    }
    for each in found.values():
        each.check()
    return found


def _parse(given: tuple[str, ...]) -> "dict[str, Format]":
    """Return the formats by field of `--decode value=avro` and `--decode avro`."""
    from streamlog.decoding.decoder import Format

    formats: dict[str, Format] = {}
    for each in given:
        name, has_name, kind = each.rpartition("=")
        if has_name and name not in _FIELDS:
            raise click.UsageError(f"--decode {each}: {name!r} is neither key nor value")
        for one in (name,) if has_name else _FIELDS:
            if one in formats:
                raise click.UsageError(f"--decode: {one} is given twice")
            formats[one] = Format.of(kind, "--decode")
    return formats
