"""Shell completion of topic names."""

import os

import click
from click.shell_completion import CompletionItem

from streamlog.cli.settings import is_path

__all__ = ["complete_topics"]


def complete_topics(
    context: click.Context, parameter: click.Parameter, typed: str
) -> list[CompletionItem]:
    """Return the topics of the named root that begin as typed; files where a path is typed."""
    if is_path(typed):
        return [CompletionItem(typed, type="file")]
    root = _root_of(context)
    if not root:
        return []
    from streamlog.errors import StreamLogError
    from streamlog.fs.local import LocalFileSystem
    from streamlog.root.topics import list_topics

    try:
        names = list_topics(LocalFileSystem(), root)
    except StreamLogError:
        return []
    return [CompletionItem(name) for name in names if name.startswith(typed)]


def _root_of(context: click.Context | None) -> str | None:
    """Return the root that the words typed so far name; the verbs have not run."""
    while context is not None:
        if context.params.get("path"):
            return str(context.params["path"])
        context = context.parent
    return os.environ.get("STREAMLOG_PATH")
