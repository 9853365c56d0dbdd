"""Entry point: runs a verb and turns exceptions into two lines of text and an exit code."""

import io
import logging
import os
import sys
import traceback
from typing import Any, NoReturn

import click

from streamlog.cli.commands import streamlog
from streamlog.cli.output import (
    EXIT_FINDING,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    Failure,
    Findings,
    explain,
)
from streamlog.cli.verb import VERB
from streamlog.errors import StreamLogError

__all__ = ["main", "streamlog"]


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command and exit; the entry point of the package.

    Args:
        arguments: The command line without the program name; `sys.argv[1:]` by default.
    """
    if "_STREAMLOG_COMPLETE" in os.environ:  # set by the shell for completion
        streamlog.main(prog_name="streamlog")
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: list[str]) -> int:
    """Run the command and return its exit code. Nothing escapes; a traceback would be a bug."""
    _hush_logging()
    begun: dict[str, Any] = {VERB: "streamlog"}
    try:
        # `streamlog.main` would handle closed pipes and Ctrl-C in its own way.
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
        return _report([explain(error, begun[VERB]) for error in findings.errors])
    except StreamLogError as error:
        return _report([explain(error, begun[VERB])])
    except click.ClickException as error:
        return _report_usage(error)
    except (OSError, MemoryError) as error:
        return _report(
            [Failure(f"{type(error).__name__}: {error}", "streamlog doctor", EXIT_FINDING)]
        )
    except Exception as error:  # noqa: BLE001 - the last resort of a command line
        if os.environ.get("STREAMLOG_DEBUG"):
            traceback.print_exc()
        what = f"internal error (a bug in streamlog): {type(error).__name__}: {error}"
        return _report(
            [
                Failure(
                    what, "run again with STREAMLOG_DEBUG=1 and report the traceback", EXIT_FINDING
                )
            ]
        )


def _hush_logging() -> None:
    """Suppress the library's log messages; errors are reported as exceptions anyway."""
    logger = logging.getLogger("streamlog")
    if not logger.handlers and not os.environ.get("STREAMLOG_DEBUG"):
        logger.addHandler(logging.NullHandler())


def _report(failures: list[Failure]) -> int:
    for failure in failures:
        click.echo(str(failure), err=True)
    return max(failure.exit_code for failure in failures)


def _report_usage(error: click.ClickException) -> int:
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "streamlog"
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(error.format_message(), err=True)
        return EXIT_USAGE
    return _report([Failure(error.format_message(), f"{command} --help", EXIT_USAGE)])


def _closed_pipe() -> int:
    """End silently: the reader of the output, such as `head`, has enough."""
    sys.stdout = io.StringIO()  # else the interpreter flushes the old one at exit and fails again
    return 0
