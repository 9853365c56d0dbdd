"""Errors that several decoders raise."""

from streamlog.errors import InvalidOptionError, InvalidRequestError

__all__ = ["missing_extra", "missing_schema"]


def missing_extra(what: str, error: ImportError) -> InvalidRequestError:
    """Return the error for a library that is not installed."""
    return InvalidRequestError(
        f"{what} needs an extra",
        got=f"no module {error.name}",
        hint="pip install 'pyspark-streamlog[decode]'",
    )


def missing_schema(name: str) -> InvalidOptionError:
    """Return the error for a specification without a reader's schema."""
    if name == "json":
        return InvalidOptionError(
            "decoding JSON needs a schema",
            expected="a DDL such as: id BIGINT, name STRING; or a registry and a subject",
        )
    return InvalidOptionError(
        f"decoding {name} needs the reader's schema",
        expected="its text or @FILE, or a registry and a subject",
    )
