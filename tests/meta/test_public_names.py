"""The three statements of the public names in streamlog/__init__.py agree.

A public name also means the same object after any order and form of imports.
"""

import ast
import inspect
import pkgutil
import re
import subprocess
import sys
from importlib import import_module

import pytest

import streamlog
from tests.meta.repository import PACKAGE, parse


def names_for_type_checkers(tree: ast.Module) -> set[str]:
    (block,) = (
        node
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.asname or alias.name for node in imports for alias in node.names}


def test_all_has_each_name_once() -> None:
    assert len(streamlog.__all__) == len(set(streamlog.__all__))


def test_lazy_table_has_exactly_the_public_names() -> None:
    assert set(streamlog._HOME) == set(streamlog.__all__)


def test_type_checkers_see_exactly_the_public_names() -> None:
    assert names_for_type_checkers(parse(PACKAGE / "__init__.py")) == set(streamlog.__all__)


def test_every_public_name_resolves() -> None:
    for name in streamlog.__all__:
        assert getattr(streamlog, name).__name__ == name


def test_every_public_name_is_documented() -> None:
    missing = [name for name in streamlog.__all__ if not getattr(streamlog, name).__doc__]
    assert missing == []


# Parts of an open log that the rest of the package works on.
PARTS_OF_A_LOG = {"log_root", "segments", "leader_epochs", "producers"}


@pytest.mark.parametrize("name", ["LogManager", "PartitionLog", "Consumer", "Producer"])
def test_what_public_methods_return_is_public(name: str) -> None:
    public = getattr(streamlog, name)
    private = set()
    for attribute in vars(public).keys() | {n for base in public.__mro__ for n in vars(base)}:
        static = inspect.getattr_static(public, attribute)
        function = static.fget if isinstance(static, property) else static
        if attribute.startswith("_") or attribute in PARTS_OF_A_LOG or not callable(function):
            continue
        returned = str(inspect.signature(function).return_annotation)
        for dotted in re.findall(r"streamlog\.[\w.]+", returned):
            if dotted.rpartition(".")[2] not in streamlog.__all__:
                private.add((attribute, dotted))
    assert private == set()


PACKAGES = ("streamlog", "streamlog.spark", "streamlog.testing")  # modules with public names

# What a program may have imported before: nothing, the name's module, or all modules.
ORDERS = """
import importlib, pkgutil, sys, types
package, order = sys.argv[1:]
module = importlib.import_module(package)
if order == "all modules first":
    for found in pkgutil.iter_modules(module.__path__):
        if not found.name.startswith("_") and found.name != "plugin":
            importlib.import_module(f"{package}.{found.name}")
for name in module.__all__:
    if order == "its module first":
        importlib.import_module(f"{package}.{module._HOME[name]}")
    by_from = {}
    exec(f"from {package} import {name}", by_from)
    by_star = {}
    exec(f"from {package} import *", by_star)
    by_module = getattr(importlib.import_module(f"{package}.{module._HOME[name]}"), name)
    values = by_from[name], by_star[name], getattr(module, name), by_module
    if isinstance(values[0], types.ModuleType) or any(each is not values[0] for each in values):
        print(name, *values)
"""


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_has_a_public_name(package: str) -> None:
    """Importing such a module would bind it in the package under that name."""
    module = import_module(package)
    modules = {found.name for found in pkgutil.iter_modules(module.__path__)}
    assert modules.isdisjoint(module.__all__)


@pytest.mark.parametrize("order", ["nothing first", "its module first", "all modules first"])
@pytest.mark.parametrize("package", PACKAGES)
def test_a_public_name_is_the_same_object_in_every_form_and_order_of_imports(
    package: str, order: str
) -> None:
    command = [sys.executable, "-c", ORDERS, package, order]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (0, ""), result.stderr
