"""A verb: the options that all verbs share, and the work, which is imported when the verb runs."""

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

__all__ = ["FORMATS", "VERB", "Settings", "complete_topics", "is_path", "load", "verb"]

FORMATS = ("table", "json", "ndjson")
VERB = "streamlog.verb"  # where the contexts of a run keep which verb was begun last


def load(name: str) -> Any:
    """Return what `MODULE:NAME` names in this package; the only import at run time.

    Everything else is imported at the top of its module. The modules of the work load numpy, those
    of the terminal rich: too slow for `--help`, completion and output to a pipe.
    """
    module, _, attribute = name.partition(":")
    return getattr(import_module(f"streamlog.cli.{module}"), attribute)


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


def verb(work: str | None = None, *, is_formatted: bool = True) -> Callable[..., Any]:
    """Return a decorator that makes a declaration a verb with the shared options.

    Args:
        work: `MODULE:FUNCTION`, called with the `Settings` and the verb's own values; None for a
            group, whose verbs do the work.
        is_formatted: Whether `--format` is that of the output, not one of the verb's own.
    """

    def decorate(declaration: Callable[[], None]) -> Callable[..., Any]:
        @functools.wraps(declaration)
        @click.pass_context
        def invoke(
            context: click.Context, /, *, path: str | None, quiet: bool, **values: Any
        ) -> None:
            format = values.pop("format") if is_formatted else None
            context.meta[VERB] = context.command_path
            outer = context.find_object(Settings) or Settings()
            context.obj = outer.overridden(path=path, format=format, quiet=quiet)
            if work is not None:
                load(work)(context.obj, **values)

        shared = _QUIET(invoke)
        return _PATH(_FORMAT(shared) if is_formatted else shared)

    return decorate


def complete_topics(
    context: click.Context, parameter: click.Parameter, typed: str
) -> list[CompletionItem]:
    """Return the topics of the named root that begin as typed; files where a path is typed."""
    if is_path(typed):
        return [CompletionItem(typed, type="file")]
    root = _root_of(context)
    names = load("topics:topic_names")(root) if root else ()
    return [CompletionItem(name) for name in names if name.startswith(typed)]


def _root_of(context: click.Context | None) -> str | None:
    """Return the root that the words typed so far name; the verbs have not run."""
    while context is not None:
        if context.params.get("path"):
            return str(context.params["path"])
        context = context.parent
    return os.environ.get("STREAMLOG_PATH")
