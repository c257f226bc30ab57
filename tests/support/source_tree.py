"""What the tree of sources says of itself: its modules, who imports whom, how long things are."""

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

from tests.support.paths import ROOT

PACKAGES: Final = ("tandem", "tandem_server", "store", "ha", "node")
SOURCES: Final = sorted(file for name in PACKAGES for file in (ROOT / name).rglob("*.py"))

EXCUSE: Final = "Long because"
"""Begins the line that says why a module or a function has to be as long as it is."""

Function = ast.FunctionDef | ast.AsyncFunctionDef

# A tokenizer would be exact, and take a hundred times as long.
_WORDS: Final = re.compile(r'"""(?s:.*?)"""|#.*')
_PATH: Final = re.compile(r"(?<![\w./<{:-])(?:\.\./)*\w[\w.*-]*/[\w./*-]*\.(?:py|md|java)\b")
# `store.put` and `node.pid` are as often an object's attribute as a module's; `store.log.log_end`,
# and whatever begins with `tandem`, is not.
_DOTTED: Final = re.compile(
    r"(?<![\w./:@-])(?:tandem(?:\.[A-Za-z_]\w*)+|(?:store|ha|node|tests)(?:\.[A-Za-z_]\w*){2,})\b(?!/)"
)


@cache
def syntax_tree(file: Path) -> ast.Module:
    """The code of a file."""
    return ast.parse(file.read_bytes())


@cache
def running_code(file: Path) -> ast.Module:
    """The code of a module that runs: without what is there for type checkers."""
    body = [
        node
        for node in syntax_tree(file).body
        if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    ]
    return ast.Module(body, [])


@cache
def running_nodes(file: Path) -> tuple[ast.AST, ...]:
    """All nodes of the code that runs; several tests look at each of the half million."""
    return tuple(ast.walk(running_code(file)))


def module_name(file: Path) -> str:
    """`store.log` of `store/log/__init__.py`, `store.log.log_end` of `store/log/log_end.py`."""
    name = ".".join(file.relative_to(ROOT).with_suffix("").parts)
    return name.removesuffix(".__init__")


MODULES: Final = {module_name(file): file for file in SOURCES}


def import_graph() -> dict[str, set[str]]:
    """What each module imports of ours, anywhere in it and for type checkers as well."""
    return {name: set(_imports_of_ours(name, file)) for name, file in MODULES.items()}


def _imports_of_ours(name: str, file: Path) -> Iterator[str]:
    for node in ast.walk(syntax_tree(file)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                found = full if full in MODULES else node.module
                if found in MODULES and found != name:
                    yield found


def import_cycles(graph: Mapping[str, set[str]]) -> set[frozenset[str]]:
    """Groups of modules of which each can be reached from each other (Kosaraju's two walks)."""
    order: list[str] = []
    seen: set[str] = set()
    for start in graph:
        order += _reached(graph, start, seen)
    importers: dict[str, set[str]] = {name: set() for name in graph}
    for name, imported in graph.items():
        for each in imported:
            importers[each].add(name)
    seen = set()
    groups = (frozenset(_reached(importers, start, seen)) for start in reversed(order))
    return {group for group in groups if len(group) > 1}


def _reached(graph: Mapping[str, set[str]], start: str, seen: set[str]) -> list[str]:
    """What can be reached and was not seen yet, each after all that can be reached from it."""
    found: list[str] = []
    path = [(start, iter(sorted(graph[start])))] if start not in seen else []
    seen.add(start)
    while path:
        name, rest = path[-1]
        following = next((each for each in rest if each not in seen), None)
        if following is None:
            path.pop()
            found.append(name)
        else:
            seen.add(following)
            path.append((following, iter(sorted(graph[following]))))
    return found


def module_lines(file: Path) -> int:
    """All lines of a module, empty ones too."""
    return len(file.read_bytes().splitlines())


def functions(file: Path) -> Iterator[tuple[str, Function]]:
    """Every function of a file with its name, methods as `Class.method`."""
    yield from _functions(syntax_tree(file), "")


def _functions(node: ast.AST, within: str) -> Iterator[tuple[str, Function]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function | ast.ClassDef):
            name = f"{within}{child.name}"
            if isinstance(child, Function):
                yield name, child
            yield from _functions(child, f"{name}.")
        else:
            yield from _functions(child, within)


def lines_of(function: Function) -> int:
    """Lines of a function, from its `def` to its end, without its docstring."""
    end = function.end_lineno or function.lineno
    docstring = function.body[0]
    has_docstring = ast.get_docstring(function) is not None
    docstring_lines = (docstring.end_lineno or 0) - docstring.lineno + 1 if has_docstring else 0
    return end - function.lineno + 1 - docstring_lines


def is_excused(file: Path, owner: ast.Module | Function) -> bool:
    """Whether its docstring or the comment above it has a line that begins with `EXCUSE`."""
    lines = (ast.get_docstring(owner) or "").splitlines()
    if not isinstance(owner, ast.Module):
        first = min([owner.lineno, *(each.lineno for each in owner.decorator_list)])
        above = file.read_text().splitlines()[: first - 1]
        while above and above[-1].lstrip().startswith("#"):
            lines.append(above.pop().lstrip("# "))
    return any(line.strip().startswith(EXCUSE) for line in lines)


def prose(file: Path) -> str:
    """What a file says in words: a page as a whole, of a module docstrings and comments."""
    text = file.read_text(encoding="utf-8")
    return "\n".join(_WORDS.findall(text)) if file.suffix == ".py" else text


def named_paths(text: str) -> list[str]:
    """Paths of modules, pages and Java programs such as `store/config.py` in a text."""
    return _PATH.findall(text)


def path_exists(path: str, beside: Path) -> bool:
    """Whether there is a file of this path, `*` for any, from the root or beside a file."""
    return any(ROOT.glob(path)) or (beside.parent / path).exists()


def named_modules(text: str) -> list[str]:
    """Dotted names that begin with a package of ours, such as `store.log.log_end`."""
    return _DOTTED.findall(text)


def dotted_name_exists(name: str) -> bool:
    """Whether a dotted name is a module of ours or something that one defines or imports."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        folder = ROOT.joinpath(*parts[:count])
        if count == len(parts) and folder.is_dir():
            return True
        file = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
        if file.exists():
            return count == len(parts) or _has_name(file, parts[count])
    return False


def _has_name(file: Path, name: str) -> bool:
    return re.search(rf"\b{name}\b", file.read_text(encoding="utf-8")) is not None
