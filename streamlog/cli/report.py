"""`streamlog report`: what is in a log root, as one page or as JSON."""

import click

from streamlog.cli.output import Output, Progress, remark, to_json
from streamlog.cli.verb import Settings
from streamlog.overview.look import overview_of
from streamlog.overview.model import as_json
from streamlog.words import counted, human_size

__all__ = ["report"]

_PAGE = "report.html"


def report(
    settings: Settings, *, root: str | None, output: str | None, verify: bool, hours: int
) -> None:
    """Write the page, or print the overview as JSON."""
    path = settings.root if root is None else root
    with Progress(settings, f"looking at {path}", None):
        found = overview_of(path, steps=hours, is_verified=verify)
    if settings.format in ("json", "ndjson"):
        data = to_json(as_json(found)) + b"\n"
    else:
        from streamlog.web.pages import report_page  # jinja2

        data = report_page(found).encode("utf-8", "backslashreplace")
        output = output or _PAGE
    if output is None or output == "-":
        printed = Output(settings)
        printed.write(data)
        printed.flush()
        return
    with click.open_file(output, "wb", atomic=True) as target:
        target.write(data)
    topics, size = counted(len(found.topics), "topic"), human_size(len(data))
    remark(settings, f"wrote {output}: {topics}, {size}; open it in a browser")
