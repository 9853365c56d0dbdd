"""A verb: the options shared by all verbs, and its work, imported when the verb runs."""

import functools
import gc
import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

__all__ = [
    "FORMATS",
    "JSON_SHAPES",
    "VERB",
    "Settings",
    "complete_topics",
    "decode_option",
    "is_path",
    "load",
    "registry_option",
    "schema_options",
    "verb",
]

JSON_SHAPES = "JSON shapes: streamlog/cli/JSON.md."  # below the help of a verb that prints rows
FORMATS = ("table", "json", "ndjson")
VERB = "streamlog.verb"  # key in context.meta: the command path of the last verb entered

decode_option = click.option(
    "-s",
    "--decode",
    multiple=True,
    metavar="[key=|value=]FORMAT",
    help="Decode keys, values or both from json, avro or protobuf.",
)
registry_option = click.option(
    "-r",
    "--schema-registry",
    metavar="URL|DIR",
    help="The schemas: a registry as Confluent's, or a directory with ID.avsc or ID.proto.",
)
_SCHEMA_OPTIONS = (
    click.option("--key-schema", metavar="TEXT|@FILE", help="The same for keys."),
    click.option(
        "--value-message",
        metavar="NAME",
        help="The Protobuf message. Default: the first of a schema.",
    ),
    click.option("--key-message", metavar="NAME", help="The same for keys."),
    click.option(
        "--schema-framing",
        type=click.Choice(("confluent", "none")),
        default="confluent",
        show_default=True,
        help="Whether an id before each value, or a GUID in a header, names its schema.",
    ),
)


def schema_options(help: str) -> Callable[[Any], Any]:
    """Return a decorator with the options beside `decode_option` and `registry_option`.

    Args:
        help: What `--value-schema` means.
    """
    schema = click.option("--value-schema", metavar="TEXT|@FILE", help=help)

    def decorate(declaration: Any) -> Any:
        for option in reversed((schema, *_SCHEMA_OPTIONS)):
            declaration = option(declaration)
        return declaration

    return decorate


def load(name: str) -> Any:
    """Return the object named `MODULE:NAME` of this package: the package's only late import.

    Modules that do a verb's work load numpy, `terminal` loads rich: too slow for `--help`,
    completion and output to a pipe. What is loaded stays, so collecting garbage meanwhile would
    only take time, a fifth of it.
    """
    module, _, attribute = name.partition(":")
    gc.disable()
    try:
        return getattr(import_module(f"streamlog.cli.{module}"), attribute)
    finally:
        gc.freeze()
        gc.enable()


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Values of the shared options.

    Attributes:
        path: The log root; None if not given.
        format: One of `FORMATS`; None selects `table` on a terminal and `ndjson` elsewhere.
        quiet: Whether to suppress progress and remarks.
    """

    path: str | None = None
    format: str | None = None
    quiet: bool = False

    @property
    def root(self) -> str:
        """The log root.

        Raises:
            UsageError: No root was given.
        """
        if not self.path:
            raise click.UsageError("no log root: pass --path ROOT or set STREAMLOG_PATH")
        return self.path

    def overridden(self, *, path: str | None, format: str | None, quiet: bool) -> "Settings":
        """Return these settings, overridden by the options closer to the verb."""
        return Settings(
            path=path or self.path, format=format or self.format, quiet=quiet or self.quiet
        )


def is_path(argument: str) -> bool:
    """Return whether an argument is a path; topic names contain no slash."""
    return "/" in argument or argument in (".", "..")


_PATH = click.option(
    "--path", metavar="ROOT", help="Log root. Default: STREAMLOG_PATH.", show_default=False
)
_FORMAT = click.option(
    "--format",
    type=click.Choice(FORMATS),
    help="Output format. Default: table on a terminal, ndjson elsewhere.",
)
_QUIET = click.option("--quiet", is_flag=True, help="Suppress progress and remarks.")


def verb(work: str | None = None, *, is_formatted: bool = True) -> Callable[..., Any]:
    """Return a decorator that turns a declaration into a verb with the shared options.

    Args:
        work: `MODULE:FUNCTION`, called with the `Settings` and the verb's own options; None for a
            group.
        is_formatted: Whether `--format` is the shared option; `produce` has one of its own.
    """

    def decorate(declaration: Callable[[], None]) -> Callable[..., Any]:
        @functools.wraps(declaration)
        @click.pass_context
        def invoke(
            context: click.Context, /, *, path: str | None, quiet: bool, **values: Any
        ) -> None:
            format = values.pop("format") if is_formatted else None
            context.meta[VERB] = context.command_path
            outer = context.find_object(Settings) or Settings()  # of the group
            context.obj = outer.overridden(path=path, format=format, quiet=quiet)
            if work is not None:
                load(work)(context.obj, **values)

        shared = _QUIET(invoke)
        return _PATH(_FORMAT(shared) if is_formatted else shared)

    return decorate


def complete_topics(
    context: click.Context, parameter: click.Parameter, typed: str
) -> list[CompletionItem]:
    """Return the topics of the root that start with the typed text, or files for a path."""
    if is_path(typed):
        return [CompletionItem(typed, type="file")]
    root = _root_of(context)
    names = load("topics:topic_names")(root) if root else ()
    return [CompletionItem(name) for name in names if name.startswith(typed)]


def _root_of(context: click.Context | None) -> str | None:
    """Return the root named on the command line so far; during completion no verb has run."""
    while context is not None:
        if context.params.get("path"):
            return str(context.params["path"])
        context = context.parent
    return os.environ.get("STREAMLOG_PATH")
