"""Entry point: the verbs, the options before them, and what becomes of an error."""

import io
import logging
import os
import platform
import sys
import traceback
from typing import Any, NoReturn

import click

from streamlog.cli.cat import cat
from streamlog.cli.delete_records import delete_records
from streamlog.cli.doctor import doctor
from streamlog.cli.dump import dump
from streamlog.cli.failures import (
    EXIT_FINDING,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    Failure,
    Findings,
    explain,
)
from streamlog.cli.handover import handover
from streamlog.cli.lag import lag
from streamlog.cli.maintain import maintain
from streamlog.cli.offsets import offsets
from streamlog.cli.produce import produce
from streamlog.cli.readers import readers
from streamlog.cli.repair import repair
from streamlog.cli.settings import FORMATS, VERB, Settings
from streamlog.cli.topics import topics
from streamlog.cli.verify import verify
from streamlog.errors import StreamLogError

__all__ = ["main", "streamlog"]

_VERSIONS_OF = ("pyspark", "pyarrow", "numpy", "numba")


def _print_versions(context: click.Context, parameter: click.Parameter, wanted: bool) -> None:  # noqa: FBT001 - click's way
    if not wanted or context.resilient_parsing:
        return
    click.echo(f"streamlog {_version_of('pyspark-streamlog')}")
    click.echo(f"python {platform.python_version()}")
    for name in _VERSIONS_OF:
        click.echo(f"{name} {_version_of(name)}")
    context.exit()


def _version_of(distribution: str) -> str:
    from importlib import metadata

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "not installed"


@click.group(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 fine, 1 a finding, 2 wrong use or bad input, 130 interrupted.",
)
@click.option("--path", metavar="ROOT", envvar="STREAMLOG_PATH", help="The log root.")
@click.option("--format", type=click.Choice(FORMATS), help="How to print data.")
@click.option("--quiet", is_flag=True, help="No progress, no remarks.")
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_versions,
    help="Print the versions of what works together here.",
)
@click.pass_context
def streamlog(context: click.Context, *, path: str | None, format: str | None, quiet: bool) -> None:
    """Kafka's log without the broker: make topics, write them, read them, look inside.

    \b
    Example:
      export STREAMLOG_PATH=/tmp/log
      streamlog topics create orders --partitions 4
      echo 'eu:first order' | streamlog produce orders --key-separator :
      streamlog cat orders
    """
    context.meta[VERB] = context.command_path
    context.obj = Settings(path=path, format=format, quiet=quiet)


for _verb in (
    *(topics, produce, cat, offsets, dump, verify, repair, delete_records, maintain),
    *(readers, lag, handover, doctor),
):
    streamlog.add_command(_verb)


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command and exit; the entry point of the package.

    Args:
        arguments: The command line without the program's name; `sys.argv` by default.
    """
    if "_STREAMLOG_COMPLETE" in os.environ:  # the shell asks for completions
        streamlog.main(prog_name="streamlog")
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: list[str]) -> int:
    """Run the command and return its exit code. Nothing escapes: a traceback is a defect."""
    _hush_logging()
    begun: dict[str, Any] = {VERB: "streamlog"}
    try:
        # Not `streamlog.main`, which has its own way with closed pipes and Ctrl-C.
        with streamlog.make_context("streamlog", list(arguments)) as context:
            begun = context.meta
            streamlog.invoke(context)
        sys.stdout.flush()
        return 0
    except click.exceptions.Exit as done:
        return done.exit_code
    except BrokenPipeError:
        return _closed_pipe()
    except (KeyboardInterrupt, click.Abort):
        return EXIT_INTERRUPTED
    except Findings as findings:
        return _tell([explain(error, begun[VERB]) for error in findings.errors])
    except StreamLogError as error:
        return _tell([explain(error, begun[VERB])])
    except click.ClickException as error:
        return _tell_usage(error)
    except (OSError, MemoryError) as error:
        return _tell(
            [Failure(f"{type(error).__name__}: {error}", "streamlog doctor", EXIT_FINDING)]
        )
    except Exception as error:  # noqa: BLE001 - the last resort of a command line
        if os.environ.get("STREAMLOG_DEBUG"):
            traceback.print_exc()
        what = f"a defect of streamlog: {type(error).__name__}: {error}"
        return _tell(
            [Failure(what, "the same with STREAMLOG_DEBUG=1, and report it", EXIT_FINDING)]
        )


def _hush_logging() -> None:
    """Keep Python from printing the library's warnings; what matters comes back as an error."""
    logger = logging.getLogger("streamlog")
    if not logger.handlers and not os.environ.get("STREAMLOG_DEBUG"):
        logger.addHandler(logging.NullHandler())


def _tell(failures: list[Failure]) -> int:
    for failure in failures:
        click.echo(str(failure), err=True)
    return max(failure.exit_code for failure in failures)


def _tell_usage(error: click.ClickException) -> int:
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "streamlog"
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(error.format_message(), err=True)
        return EXIT_USAGE
    return _tell([Failure(error.format_message(), f"{command} --help", EXIT_USAGE)])


def _closed_pipe() -> int:
    """End in silence: whoever read the output has what they wanted.

    What stdout still buffers must not be flushed at exit, where it would fail once more.
    """
    sys.stdout = io.StringIO()
    return 0
