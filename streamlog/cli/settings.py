"""The options every verb shares, accepted before the verb and after it (after wins)."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

__all__ = [
    "FORMATS",
    "JSON_SHAPES",
    "VERB",
    "Settings",
    "decompressing",
    "is_path",
    "reading_verb",
    "writing_verb",
]

FORMATS = ("table", "json", "ndjson")
JSON_SHAPES = "JSON shapes: streamlog/cli/JSON.md."  # below the help of a verb that prints rows
VERB = "streamlog.verb"  # where the contexts of a run keep which verb was begun last


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the shared options say.

    Attributes:
        path: The log root, None where nobody named one.
        format: One of `FORMATS`, None to choose by where the output goes.
        quiet: Whether to leave out progress and remarks.
    """

    path: str | None = None
    format: str | None = None
    quiet: bool = False

    @property
    def root(self) -> str:
        """The log root.

        Raises:
            UsageError: Nobody named one.
        """
        if not self.path:
            raise click.UsageError("no log root: give --path ROOT or set STREAMLOG_PATH")
        return self.path

    def overridden(self, *, path: str | None, format: str | None, quiet: bool) -> "Settings":
        """Return these settings with what was given again, closer to the verb."""
        return Settings(
            path=path or self.path, format=format or self.format, quiet=quiet or self.quiet
        )


def is_path(argument: str) -> bool:
    """Tell whether an argument names a directory or a file; a topic's name has no slash."""
    return "/" in argument or argument in (".", "..")


_PATH = click.option(
    "--path", metavar="ROOT", help="The log root (or set STREAMLOG_PATH).", show_default=False
)
_FORMAT = click.option(
    "--format",
    type=click.Choice(FORMATS),
    help="How to print data: table on a terminal and ndjson elsewhere, unless told.",
)
_QUIET = click.option("--quiet", is_flag=True, help="No progress, no remarks: data and errors.")


decompressing = click.option(
    "--max-decompressed-bytes",
    type=click.IntRange(1, (1 << 31) - 1),
    metavar="N",
    help="The most bytes that one compressed batch may unfold to; by default what its topic says,"
    " 64 MiB at least.",
)


def reading_verb(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a verb the shared options; it takes them as its first argument, a `Settings`."""
    return _PATH(_FORMAT(_QUIET(_with_settings(function))))


def writing_verb(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a verb whose own `--format` is of its input the other shared options."""
    return _PATH(_QUIET(_with_settings(function, takes_format=False)))


def _with_settings(
    function: Callable[..., Any], *, takes_format: bool = True
) -> Callable[..., Any]:
    @functools.wraps(function)
    @click.pass_context
    def invoke(context: click.Context, /, *, path: str | None, quiet: bool, **values: Any) -> Any:
        format = values.pop("format") if takes_format else None
        context.meta[VERB] = context.command_path
        outer = context.find_object(Settings) or Settings()
        settings = outer.overridden(path=path, format=format, quiet=quiet)
        context.obj = settings
        return function(settings, **values)

    return invoke
