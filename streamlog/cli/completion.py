"""Shell completion of topic names."""

import click
from click.shell_completion import CompletionItem

from streamlog.cli.settings import Settings, is_path

__all__ = ["complete_topics"]


def complete_topics(
    context: click.Context, parameter: click.Parameter, typed: str
) -> list[CompletionItem]:
    """Return the topics of the named root that begin as typed; files where a path is typed."""
    if is_path(typed):
        return [CompletionItem(typed, type="file")]
    outer = context.find_object(Settings) or Settings()
    root = context.params.get("path") or outer.path
    if root is None:
        return []
    from streamlog.errors import StreamLogError
    from streamlog.fs.local import LocalFileSystem
    from streamlog.log.topics import list_topics

    try:
        names = list_topics(LocalFileSystem(), root)
    except StreamLogError:
        return []
    return [CompletionItem(name) for name in names if name.startswith(typed)]
