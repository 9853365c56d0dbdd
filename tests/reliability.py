"""`python -m tests.reliability`: the short name of `tests.programs.reliability`."""

from tests.programs.reliability.__main__ import main

if __name__ == "__main__":
    raise SystemExit(main())
