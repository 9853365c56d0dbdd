"""`streamlog doctor`: will it work here, and if not, what to type."""

import click

from streamlog.cli.failures import EXIT_FINDING
from streamlog.cli.settings import Settings, reading_verb

__all__ = ["doctor"]


@click.command()
@click.option(
    "--warm-up", is_flag=True, help="Compile all kernels first, ahead of their first use."
)
@reading_verb
def doctor(settings: Settings, warm_up: bool) -> None:  # noqa: FBT001 - click's way
    """Check Python, packages, Spark's Python, Java and the log root; print a cure for each fault.

    The exit code is 1 where something will not work.

    \b
    Examples:
      streamlog doctor
      streamlog doctor --warm-up
      streamlog --path /tmp/log doctor --format json
    """
    from streamlog.cli.checkup import check_machine, check_root_at
    from streamlog.cli.checkup_findings import FAIL
    from streamlog.cli.output import Column, Output
    from streamlog.fs.local import LocalFileSystem

    if warm_up:
        from streamlog.cli import warmup

        warmup.warm_up()
    findings = list(check_machine())
    if settings.path is not None:
        findings += check_root_at(LocalFileSystem(), settings.path)
    columns = (
        Column("check", "CHECK"),
        Column("status", "STATUS"),
        Column("found", "FOUND"),
        Column("cure", "CURE"),
    )
    Output(settings).rows([finding._asdict() for finding in findings], columns)
    if any(finding.status == FAIL for finding in findings):
        click.get_current_context().exit(EXIT_FINDING)
