"""`python -m tests.performance`: the short name of `tests.programs.performance`."""

from tests.programs.performance.__main__ import main

if __name__ == "__main__":
    raise SystemExit(main())
