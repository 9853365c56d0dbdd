"""House rules that no linter knows. The allow lists only ever get shorter."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.meta.repository import PACKAGE, ROOT, files, modules, name, parse

FUNCTION_LINES_MAX = 50
MODULE_LINES_MAX = 800
LONG_FUNCTIONS: set[str] = set()
# Steps of kernels that have twins: the twin does them in one go.
STEPS = {
    "streamlog/records/write_kernels.py:place_headers",  # write_record
    "streamlog/records/write_kernels.py:size_of_rows",  # write_records
    "streamlog/records/write_kernels.py:write_header_fields",  # write_record
}
TWINS = ROOT / "tests" / "twins"
# What runs until numba is loaded.
TWINS_IN_USE = [PACKAGE / "records" / f"plain_{what}.py" for what in ("headers", "records")]
LONG_MODULES: set[str] = set()

# Only the file-system seam touches the disk; the door to numba makes its private cache.
MAY_TOUCH_DISK = ("streamlog/fs/", "streamlog/binary/jit.py")
OS_FILE_CALLS = re.compile(
    r"os\.(open|close|p?readv?|p?writev?|sendfile|lseek|f?truncate|fsync|fdatasync|[lf]?stat|access"
    r"|chmod|chown|utime|link|symlink|readlink|renames?|replace|remove|unlink|mkdir|makedirs|rmdir"
    r"|removedirs|listdir|scandir|f?walk|mkfifo|posix_fallocate|posix_fadvise|fdopen|dup2?)"
)
FILE_MODULES = {"shutil", "mmap", "fcntl", "tempfile", "glob", "pickle", "sqlite3"}

# `LogRoot` spells the paths of a root.
SPELLS_PATHS = "streamlog/fs/log_root.py"
STATE_PATH = re.compile(r"(\S*/)?\.streamlog(/\S*)?")

NAMES_OF_NOTHING = {"utils", "util", "common", "core", "base", "helpers", "misc"}


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            yield node


def length(function: ast.FunctionDef) -> int:
    """Return a function's lines from `def` to its end, its docstring left out."""
    assert function.end_lineno is not None
    lines = function.end_lineno - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function) is not None and first.end_lineno is not None:
        lines -= first.end_lineno - first.lineno + 1
    return lines


def kernels(tree: ast.Module) -> list[ast.FunctionDef]:
    return [
        function
        for function in functions(tree)
        if any(ast.unparse(each).startswith("kernel") for each in function.decorator_list)
    ]


def test_functions_are_short() -> None:
    long = {
        f"{name(path)}:{function.name}"
        for path in files(".py")
        for function in functions(parse(path))
        if length(function) > FUNCTION_LINES_MAX
    }
    assert long == LONG_FUNCTIONS


def test_modules_are_short() -> None:
    long = {
        name(path)
        for path in files(".py")
        if len(path.read_text(encoding="utf-8").splitlines()) > MODULE_LINES_MAX
    }
    assert long == LONG_MODULES


def test_modules_are_called_after_a_thing() -> None:
    assert {name(path) for path in files(".py") if path.stem in NAMES_OF_NOTHING} == set()


def test_every_package_and_module_says_what_it_is() -> None:
    assert [name(path) for path in modules() if not ast.get_docstring(parse(path))] == []


def test_no_two_public_classes_share_a_name() -> None:
    places: dict[str, list[str]] = {}
    for path in modules():
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(f"{name(path)}:{node.lineno}")
    assert {each: where for each, where in places.items() if len(where) > 1} == {}


def disk_calls(path: Path) -> Iterator[str]:
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            imported = (
                [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else [alias.name for alias in node.names]
            )
            yield from (f"import {each}" for each in imported if each in FILE_MODULES)
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in ("open", "io.open") or OS_FILE_CALLS.fullmatch(called):
                yield f"{called} on line {node.lineno}"


def test_only_the_seam_touches_the_disk() -> None:
    found = {
        name(path): calls
        for path in modules()
        if not name(path).startswith(MAY_TOUCH_DISK) and (calls := list(disk_calls(path)))
    }
    assert found == {}


def test_paths_of_a_root_are_spelled_in_one_module() -> None:
    """A string that holds a space is a sentence: messages may name the directory."""
    found = {
        name(path)
        for path in modules()
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and STATE_PATH.fullmatch(node.value)
    }
    assert found == {SPELLS_PATHS}


def test_every_kernel_says_what_it_does() -> None:
    bare = [
        f"{name(path)}:{kernel.name}"
        for path in modules()
        for kernel in kernels(parse(path))
        if not ast.get_docstring(kernel)
    ]
    assert bare == []


class Uses(NamedTuple):
    """What a module takes from others: gathered once, as there are many pairs of modules."""

    imports: list[tuple[str, str, str]]  # from this module, this name, known as
    attributes: dict[str, set[str]]  # of each name

    @classmethod
    def of(cls, user: ast.Module) -> "Uses":
        imports: list[tuple[str, str, str]] = []
        attributes: dict[str, set[str]] = {}
        for node in ast.walk(user):
            if isinstance(node, ast.ImportFrom):
                imports += [
                    (node.module or "", alias.name, alias.asname or alias.name)
                    for alias in node.names
                ]
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                attributes.setdefault(node.value.id, set()).add(node.attr)
        return cls(imports, attributes)

    def names_of(self, module: Path) -> set[str]:
        """Return the names of `module` that are imported, or read from it."""
        dotted = ".".join(module.relative_to(ROOT).with_suffix("").parts)
        found = {imported for source, imported, _ in self.imports if source == dotted}
        for source, imported, alias in self.imports:
            if f"{source}.{imported}" == dotted:
                found |= self.attributes.get(alias, set())
        return found


def test_every_kernel_that_plain_code_calls_has_a_twin() -> None:
    """The twin is `NAME` or `plain_NAME` in `tests/twins`, or a function that production code uses.

    Kernels that only kernels call are tested by way of those.
    """
    trees = {path: parse(path) for path in modules()}
    twins = {each.name for path in TWINS.glob("*.py") for each in functions(parse(path))}
    twins |= {each.name for path in TWINS_IN_USE for each in functions(trees[path])}
    twins |= plain_functions(trees)
    callers = [Uses.of(tree) for tree in trees.values() if not kernels(tree)]
    alone = {
        f"{name(path)}:{kernel.name}"
        for path, tree in trees.items()
        if (own := kernels(tree))
        for used in [set().union(*(caller.names_of(path) for caller in callers))]
        for kernel in own
        if kernel.name in used and not {kernel.name, f"plain_{kernel.name}"} & twins
    }
    assert alone == STEPS


def plain_functions(trees: dict[Path, ast.Module]) -> set[str]:
    found = {each.name for tree in trees.values() for each in functions(tree)}
    return {each for each in found if each.startswith("plain_")}


def test_the_package_holds_no_twin_that_only_tests_use() -> None:
    trees = {path: parse(path) for path in modules()}
    assert plain_functions(trees) - set().union(*map(names_read, trees.values())) == set()


def test_every_twin_is_used() -> None:
    """By a test, or by another twin of its module."""
    tests = [Uses.of(parse(path)) for path in files(".py") if name(path).startswith("tests/")]
    idle = {
        f"{name(twins)}:{function.name}"
        for twins in TWINS.glob("*.py")
        for tree in [parse(twins)]
        for used in [names_read(tree).union(*(each.names_of(twins) for each in tests))]
        for function in tree.body
        if isinstance(function, ast.FunctionDef) and function.name not in used
    }
    assert idle == set()


def names_read(tree: ast.Module) -> set[str]:
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Name))
    return {node.id for node in nodes if isinstance(node.ctx, ast.Load)}


def test_every_constant_of_the_layout_names_its_source() -> None:
    """A number has a comment on its line or above it; a sum of others needs none."""
    lines = (PACKAGE / "records" / "layout.py").read_text(encoding="utf-8").splitlines()
    stated = [i for i, line in enumerate(lines) if re.match(r"[A-Z0-9_]+: Final = ", line)]
    assert len(stated) > 20
    derived = re.compile(r".* = [A-Z_]+_OFFSET\b|.* = [A-Z_]+_OVERHEAD\b|MAX_INT(32|64)\b")
    bare = [
        lines[i]
        for i in stated
        if "#" not in lines[i] and not lines[i - 1].startswith("#") and not derived.match(lines[i])
    ]
    assert bare == []


# Written in pieces, so that this file is not found itself.
FORBIDDEN = re.compile(
    "|".join(
        [
            r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b",
            r"Not" r"ImplementedError",
            r"unittest\.mo" r"ck|Magic" r"Mock",
            r"(?<![\w.])/(home/\w+|wo" r"rk)/",
            r"repo1?\.ma" r"ven|py" r"pi\.org|python" r"hosted",
        ]
    )
)


def test_nothing_unfinished_and_nothing_of_one_machine() -> None:
    found = [
        f"{name(path)}:{number}: {line.strip()}"
        for path in files()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if FORBIDDEN.search(line)
    ]
    assert found == []


def test_type_checkers_are_silenced_only_with_a_code() -> None:
    bare = re.compile(r"#\s*type:\s*ignore(?!\[)|#\s*noqa(?!:)")
    found = [
        f"{name(path)}:{number}"
        for path in files(".py")
        if path != Path(__file__)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if bare.search(line)
    ]
    assert found == []


def test_top_level_holds_what_it_should() -> None:
    known = {"README.md", "Makefile", "pyproject.toml", "LICENSE"}
    tops = {path.relative_to(ROOT).parts[0] for path in files() if not path.name.startswith(".")}
    folders = {"streamlog", "streaming_jobs", "examples", "conf", "docs", "tests", ".ci", ".github"}
    assert tops <= known | folders
