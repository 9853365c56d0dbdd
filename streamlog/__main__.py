"""`python -m streamlog`: the command, run by the current Python."""

from streamlog.cli.main import main

main()
