"""`python -m streamlog`: the command, in the Python at hand."""

from streamlog.cli.main import main

main()
