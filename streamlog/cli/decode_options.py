"""The options that decode keys and values, as `cat`, `ui` and `export` take them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from streamlog.arrow.decoding_arguments import DecodingArguments
    from streamlog.decoding.as_json import FieldDecoder
    from streamlog.decoding.decoder import Format

__all__ = ["decoding_arguments", "field_decoders"]

_FIELDS: Final = ("key", "value")
_WITH_DEFAULTS: Final = ("schema_framing", "mode")


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
    if not _is_asked(decode, given):
        return {}
    from streamlog.decoding.as_json import FieldDecoder  # numba, and a library of the format

    found = {
        name: FieldDecoder(
            kind=kind,
            registry=given["schema_registry"],
            schema=given.get(f"{name}_schema"),
            message=given.get(f"{name}_message"),
            is_framed=given.get("schema_framing", "confluent") == "confluent",
            field=name,
        )
        for name, kind in _parse(decode).items()
    }
    for each in found.values():
        each.check()
    return found


def decoding_arguments(
    decode: tuple[str, ...], given: Mapping[str, str | None]
) -> "DecodingArguments | None":
    """Return how `read_table` would decode keys and values; None if they stay bytes.

    Args:
        decode: As of `field_decoders`.
        given: As of `field_decoders`.

    Raises:
        UsageError: As `field_decoders`.
        InvalidOptionError: An unknown format.
    """
    if not _is_asked(decode, given):
        return None
    from streamlog.arrow.decoding_arguments import DecodingArguments

    formats = _parse(decode)
    for name in _FIELDS:
        for what in ("schema", "subject", "message"):
            if given.get(f"{name}_{what}") is not None and name not in formats:
                raise click.UsageError(f"--{name}-{what} requires --decode {name}=FORMAT")

    def pair(what: str) -> tuple[str | None, str | None]:
        return given.get(f"key_{what}"), given.get(f"value_{what}")

    return DecodingArguments(
        formats=(formats.get("key"), formats.get("value")),
        schemas=pair("schema"),
        subjects=pair("subject"),
        messages=pair("message"),
        registry=given["schema_registry"],
        framing=given["schema_framing"] or "",
        mode=given["mode"] or "",
    )


def _is_asked(decode: tuple[str, ...], given: Mapping[str, str | None]) -> bool:
    """Return whether anything is to be decoded."""
    if decode:
        return True
    for name, value in given.items():
        if value is not None and name not in _WITH_DEFAULTS:
            raise click.UsageError(f"--{name.replace('_', '-')} requires --decode")
    return False


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
