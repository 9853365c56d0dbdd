"""The public surface is stated three times in streamlog/__init__.py; all three agree."""

import ast

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


def test_all_names_each_thing_once() -> None:
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
