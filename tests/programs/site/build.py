"""Build the documentation as a site of static pages; runs in the environment of its tools.

The pages keep their places and links: Markdown files of the repository are copied as they are.
Two are generated: the commands, from their help, and the Python interface, from its docstrings.
MkDocs, with the theme Material, fails on a broken link or anchor.
"""

import ast
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[3]
SITE = ROOT / ".cache" / "site"
COPIED = (
    "conf/*.json",
    "README.md",
    ".github/*.md",
    "docs/*.md",
    "docs/*.svg",
    "streamlog/**/*.md",
    "tests/programs/*/README.md",
)

COMMANDS = """# Commands

What `--help` prints for each. [Command line](../docs/command-line.md) has examples with output.
"""
PYTHON = """# Python interface

What `import streamlog` offers. [Python](../docs/python.md) has examples,
[Spark](../docs/spark.md) has those of `streamlog.spark`.
"""


def main() -> int:
    """Gather the pages and build; return the exit code."""
    pages = SITE / "pages"
    shutil.rmtree(pages, ignore_errors=True)
    for pattern in COPIED:
        for source in ROOT.glob(pattern):
            target = pages / source.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
    for notebook in sorted((ROOT / "examples" / "notebooks").glob("*.ipynb")):
        target = pages / "examples" / "notebooks" / f"{notebook.stem}.md"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(notebook_page(notebook))
    reference = pages / "reference"
    reference.mkdir()
    (reference / "commands.md").write_text(commands_page())
    (reference / "python.md").write_text(python_page())
    build = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--config-file",
        ROOT / "docs" / "mkdocs.yml",
    ]
    path = os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))
    return subprocess.run(
        build, env=os.environ | {"PYTHONPATH": path, "NO_MKDOCS_2_WARNING": "1"}, check=False
    ).returncode


def notebook_page(notebook: Path) -> str:
    """Return a notebook as Markdown; the notebooks are kept without outputs."""
    parts = []
    for cell in json.loads(notebook.read_text())["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
    return "\n\n".join(parts) + "\n"


def commands_page() -> str:
    """Return the page that shows the help of each command."""
    sys.path.insert(0, str(ROOT))
    from streamlog.cli.commands import streamlog

    with click.Context(streamlog, info_name="streamlog", max_content_width=92) as context:
        return COMMANDS + "".join(helps(streamlog, context, level=2))


def helps(command: click.Command, context: click.Context, *, level: int) -> Iterator[str]:
    """Yield the help of a command, then those of its own commands."""
    yield f"\n{'#' * level} {context.command_path}\n\n```text\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group):
        for name, each in sorted(command.commands.items()):
            with click.Context(each, context, info_name=name) as inner:
                yield from helps(each, inner, level=level + 1)


def python_page() -> str:
    """Return the page that shows the docstring of each public name."""
    return PYTHON + "".join(f"\n::: streamlog.{name}\n" for name in public_names())


def public_names() -> list[str]:
    """Return the names in `__all__` of the package, without importing what they need."""
    tree = ast.parse((ROOT / "streamlog" / "__init__.py").read_text())
    (names,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    return sorted(ast.literal_eval(names), key=str.lower)


if __name__ == "__main__":
    sys.exit(main())
