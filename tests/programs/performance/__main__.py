"""`python -m tests.performance [NAME…] [--json]`: run benchmarks, print a table or JSON lines."""

import argparse
import json
import sys
from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules

import tests.programs.performance
from tests.programs.performance.comparison import Comparison

HELPERS = ("commit_width", "comparison", "partitions", "peers", "queries", "servers")


def names() -> list[str]:
    """Return the benchmarks by name: each is a module with a function `compare`."""
    found = (module.name for module in iter_modules(tests.programs.performance.__path__))
    return sorted(name for name in found if name not in HELPERS and not name.startswith("_"))


def run(chosen: list[str]) -> Iterator[Comparison]:
    """Yield each result of the chosen benchmarks as soon as it is measured."""
    for name in chosen:
        yield from import_module(f"tests.programs.performance.{name}").compare()


def line(result: Comparison) -> str:
    goal = ""
    if result.goal is not None:
        sign = ">=" if result.higher_is_better else "<="
        goal = f"{sign} {result.goal:g} {'ok' if result.is_reached else 'MISSED'}"
    return (
        f"{result.bench:32} {result.ours:14,.1f} {result.peer:14,.1f} {result.unit:12} "
        f"{result.ratio:6.2f} {goal:14} beside {result.peer_name}"
    )


def main() -> int:
    """Run the benchmarks given on the command line; return 1 if one misses its goal."""
    parser = argparse.ArgumentParser(prog="python -m tests.performance", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *names()], metavar="NAME", default=[])
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    arguments = parser.parse_args()
    if not arguments.json:
        print(f"{'bench':32} {'ours':>14} {'peer':>14} {'unit':12} {'ratio':>6} goal")
    missed = 0
    for result in run(arguments.names or names()):
        print(json.dumps(result.to_json()) if arguments.json else line(result), flush=True)
        missed += not result.is_reached
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
