"""Writes docs/api.md: what `import tandem` offers, from signatures and docstrings.

    scripts/api-reference            write the page
    scripts/api-reference --check    say whether it is as it would be written

Nothing is imported from but the sources: of a public name its class is read where it is defined,
and the classes of ours that it inherits from and that are not public themselves.
"""

import ast
import enum
import importlib
import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Final, Literal, Union, get_origin

import tandem
from tandem.client.faces import AsyncFace
from tests.support.paths import ROOT

PAGE: Final = ROOT / "docs" / "api.md"

_COMMAND: Final = "scripts/api-reference"

_HEAD: Final = """\
# What `import tandem` offers

Made from the docstrings by `scripts/api-reference`: change those, and run it. What is not
on this page may change with any version.
"""

_TOPICS: Final = (
    ("Sending", r"Producer|^Ack$|Transaction|Request"),
    ("Reading", r"Consumer|DuplicateFilter|Subscription|ReceivedMessage|Lag"),
    ("Administration", r"Admin"),
    ("Where the cluster is", r"^ClusterAccess$"),
    ("Messages", r"^Message(Ext)?$|Properties"),
    ("Results", r"Result|Status|Queue|Offset"),
    ("More", r""),
)
"""What a name is about: the first that its pattern is found in."""

_FIRST: Final = (
    *("Producer", "BlockingProducer", "Ack"),
    *("Consumer", "BlockingConsumer", "Subscription", "ReceivedMessage"),
    *("PullConsumer", "BlockingPullConsumer"),
    *("Admin", "BlockingAdmin"),
)
"""What comes first in a topic, in this order; the rest by module."""

_ERRORS: Final = "Errors"

_WHY: Final = re.compile(r"(Cause|Fault)$")

_SIGNATURE_CHARACTERS_MAX: Final = 96

_SECTION: Final = re.compile(r"(Args|Attributes|Raises|Returns|Yields):")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Member:
    """A method, or a field with its type, and what its docstring says."""

    kind: Literal["field", "property", "method"]
    signature: str
    text: str


@dataclass(frozen=True)
class PublicClass:
    """A class that users import."""

    name: str
    module: str
    line: int
    bases: str
    text: str
    constructor: str
    members: tuple[Member, ...]
    words: tuple[str, ...]
    """What the names of its signatures stand for that are words: `Start = Literal['earliest']`."""


def page() -> str:
    """The whole page."""
    classes = [
        (topic_of(value), read_class(value, name))
        for name in tandem.__all__
        if inspect.isclass(value := getattr(tandem, name))
    ]
    topics: dict[str, list[PublicClass]] = {}
    for topic in (*(name for name, _ in _TOPICS), _ERRORS):
        if found := [each for of, each in classes if of == topic]:
            topics[topic] = _in_order(found)
    parts = [_HEAD, "\n".join(_contents(topics))]
    for topic, described in topics.items():
        parts.append(f"## {topic}")
        modules = set()
        for each in described:
            parts += _class_text(each, with_module=each.module not in modules)
            modules.add(each.module)
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def topic_of(value: type) -> str:
    """Where a class is described: why there is an error, with the errors."""
    if issubclass(value, BaseException) or _WHY.search(value.__name__):
        return _ERRORS
    return next(topic for topic, words in _TOPICS if re.search(words, value.__name__))


def read_class(value: type, name: str) -> PublicClass:
    """Read the source of a class, and of those of ours that it inherits from."""
    tree = _tree(value)
    members: dict[str, Member] = {}
    constructor = ""
    for each in _own_classes(value):
        for key, member in _members(_tree(each), is_enum=issubclass(value, enum.Enum)):
            members.setdefault(key, member)
        for key, member in _operations(each, value):
            members.setdefault(key, member)
        if not constructor and not issubclass(value, BaseException):
            constructor = _constructor(_tree(each), name)
    return PublicClass(
        name,
        value.__module__,
        tree.lineno,
        ", ".join(ast.unparse(base) for base in tree.bases),
        ast.get_docstring(tree) or "",
        constructor,
        tuple(sorted(members.values(), key=lambda member: member.kind == "method")),
        tuple(_words([constructor, *(member.signature for member in members.values())], value)),
    )


def _words(signatures: Iterable[str], value: type) -> Iterator[str]:
    """Of the names in signatures those that stand for words that one may write."""
    names = sorted({name for text in signatures for name in re.findall(r"\b[A-Z]\w+", text)})
    for name in names:
        meaning = getattr(sys.modules[value.__module__], name, None)
        if get_origin(meaning) in (Literal, Union, UnionType) and "Literal" in repr(meaning):
            yield f"{name} = {repr(meaning).replace('typing.', '')}"


def _own_classes(value: type) -> Iterator[type]:
    for each in value.__mro__:
        is_described_itself = each is not value and each.__name__ in tandem.__all__
        if each.__module__.split(".")[0] == "tandem" and not is_described_itself:
            yield each


@cache
def _tree(value: type) -> ast.ClassDef:
    module = importlib.import_module(value.__module__)
    source = ast.parse(Path(module.__file__ or "").read_text(encoding="utf-8"))
    for node in ast.walk(source):
        if isinstance(node, ast.ClassDef) and node.name == value.__name__:
            return node
    raise LookupError(f"{value.__name__} is not in the source of {value.__module__}")


def _members(tree: ast.ClassDef, *, is_enum: bool) -> Iterator[tuple[str, Member]]:
    overloaded = {
        node.name
        for node in _functions(tree)
        if "overload" in map(ast.unparse, node.decorator_list)
    }
    for number, node in enumerate(tree.body):
        following = tree.body[number + 1 : number + 2]
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name = node.target.id
            if not name.startswith("_"):
                default = f" = {ast.unparse(node.value)}" if node.value is not None else ""
                signature = f"{name}: {ast.unparse(node.annotation)}{default}"
                yield name, Member("field", signature, _text_after(following))
        elif isinstance(node, ast.Assign) and is_enum:
            name, value = ast.unparse(node.targets[0]), ast.unparse(node.value)
            signature = name if value == "enum.auto()" else f"{name} = {value}"
            yield name, Member("property", signature, _text_after(following))
        elif isinstance(node, Function) and not node.name.startswith("_"):
            yield from _method(node, is_overloaded=node.name in overloaded)


def _operations(each: type, face: type) -> Iterator[tuple[str, Member]]:
    """The operations that a class declares, as methods of one of its faces: see `faces`."""
    for node in _tree(each).body:
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        if ast.unparse(node.value.func) != "operation":
            continue
        owner, flow_name = ast.unparse(node.value.args[0]).split(".")
        rules = getattr(sys.modules[each.__module__], owner)
        flow = next(found for found in _functions(_tree(rules)) if found.name == flow_name)
        assert isinstance(flow.returns, ast.Subscript)
        name = ast.unparse(node.targets[0])
        is_async = issubclass(face, AsyncFace)
        signature = _broken(
            f"{'async ' if is_async else ''}def {name}",
            _parameters(flow, has_self=True),
            f" -> {ast.unparse(flow.returns.slice)}",
        )
        text = ast.get_docstring(flow) or ""
        if not is_async:
            text = f"See `{face.__name__.removeprefix('Blocking')}.{name}`."
        yield name, Member("method", signature, text)


def _functions(tree: ast.ClassDef) -> Iterator[Function]:
    return (node for node in tree.body if isinstance(node, Function))


def _method(node: Function, *, is_overloaded: bool) -> Iterator[tuple[str, Member]]:
    decorators = [ast.unparse(each) for each in node.decorator_list]
    text = ast.get_docstring(node) or ""
    if any(each.endswith((".setter", ".deleter")) for each in decorators):
        return
    if any("property" in each for each in decorators):
        returns = f": {ast.unparse(node.returns)}" if node.returns else ""
        yield node.name, Member("property", f"{node.name}{returns}", text)
        return
    if is_overloaded and "overload" not in decorators:
        return
    key = f"{node.name}:{node.lineno}" if is_overloaded else node.name
    yield key, Member("method", signature_of(node, decorators), text)


def _constructor(tree: ast.ClassDef, name: str) -> str:
    for node in _functions(tree):
        if node.name == "__init__":
            return _broken(f"class {name}", _parameters(node, has_self=True), "")
    if "msgspec.Struct" not in map(ast.unparse, tree.bases):
        return ""
    fields = [
        member.signature
        for _, member in _members(tree, is_enum=False)
        if member.kind == "field" and "ClassVar" not in member.signature
    ]
    return _broken(f"class {name}", fields, "")


def _text_after(following: list[ast.stmt]) -> str:
    """The docstring of a field: a text that follows it."""
    for node in following:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return inspect.cleandoc(str(node.value.value))
    return ""


def signature_of(node: Function, decorators: list[str]) -> str:
    """A method as its caller sees it: without `self`, in lines of bounded length."""
    kinds = [each for each in decorators if each in ("classmethod", "staticmethod")]
    awaited = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    start = "".join(f"@{kind}\n" for kind in kinds) + f"{awaited}def {node.name}"
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return _broken(start, _parameters(node, has_self="staticmethod" not in kinds), returns)


def _parameters(node: Function, *, has_self: bool) -> list[str]:
    given = node.args
    plain = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(plain) - len(given.defaults)) + list(given.defaults)
    found = [_parameter(each, default) for each, default in zip(plain, defaults, strict=True)]
    if given.posonlyargs:
        found.insert(len(given.posonlyargs), "/")
    if has_self:
        found = found[1:]
    if given.vararg is not None:
        found.append(f"*{ast.unparse(given.vararg)}")
    elif given.kwonlyargs:
        found.append("*")
    pairs = zip(given.kwonlyargs, given.kw_defaults, strict=True)
    found += [_parameter(each, default) for each, default in pairs]
    if given.kwarg is not None:
        found.append(f"**{ast.unparse(given.kwarg)}")
    return found


def _parameter(node: ast.arg, default: ast.expr | None) -> str:
    if default is None:
        return ast.unparse(node)
    equals = " = " if node.annotation else "="
    return f"{ast.unparse(node)}{equals}{_value(default)}"


def _value(node: ast.expr) -> str:
    if isinstance(node, ast.Constant) and type(node.value) is int and node.value >= 1_000:
        return f"{node.value:_}"
    return ast.unparse(node)


def _broken(start: str, parameters: list[str], end: str) -> str:
    line = f"{start}({', '.join(parameters)}){end}"
    if max(map(len, line.splitlines())) <= _SIGNATURE_CHARACTERS_MAX:
        return line
    return "\n".join([f"{start}(", *(f"    {each}," for each in parameters), f"){end}"])


def markdown_of(docstring: str) -> str:
    """A docstring with its sections as lists; what is indented stays a block of code."""
    lines = docstring.splitlines()
    parts: list[str] = []
    number = 0
    while number < len(lines):
        heading = _SECTION.fullmatch(lines[number])
        number += 1
        if heading is None:
            parts.append(lines[number - 1])
            continue
        body = []
        while number < len(lines) and (not lines[number].strip() or lines[number].startswith(" ")):
            body.append(lines[number])
            number += 1
        parts += [f"{heading[1]}:", "", *_entries(body), ""]
    return "\n".join(parts).strip("\n")


def _entries(body: list[str]) -> Iterator[str]:
    """`name: words` and what is indented below it: one item."""
    for text in re.split(r"\n(?=    \S)", "\n".join(body)):
        words = re.sub(r"\s+", " ", text).strip()
        if words:
            name, colon, rest = words.partition(": ")
            is_named = colon and re.fullmatch(r"[\w.*]+(, [\w.*]+)*", name)
            yield f"- `{name}`: {rest}" if is_named else f"- {words}"


def _contents(topics: dict[str, list[PublicClass]]) -> Iterator[str]:
    yield "| | |"
    yield "| --- | --- |"
    for topic, classes in topics.items():
        links = ", ".join(f"[`{each.name}`](#{each.name.lower()})" for each in classes)
        yield f"| {topic} | {links} |"


def _in_order(classes: list[PublicClass]) -> list[PublicClass]:
    ranks = {name: number for number, name in enumerate(_FIRST)}
    return sorted(
        classes, key=lambda each: (ranks.get(each.name, len(ranks)), each.module, each.line)
    )


def _module_text(module: str) -> str:
    """What a module of the client says; those of the wire speak of bytes."""
    if not module.startswith("tandem.client."):
        return ""
    text = inspect.getdoc(importlib.import_module(module)) or ""
    return markdown_of(text) if "\n" in text else ""


def _class_text(described: PublicClass, *, with_module: bool) -> Iterator[str]:
    yield f"### {described.name}"
    if with_module:
        yield _module_text(described.module)
    if described.constructor:
        yield _code("\n".join([*described.words, described.constructor]))
    elif described.bases:
        yield _code(f"class {described.name}({described.bases})")
    yield markdown_of(described.text)
    fields = [member for member in described.members if _is_listed(member, described)]
    if fields:
        yield "Values:" if "Enum" in described.bases else "Attributes:"
        yield "\n".join(_field(member) for member in fields)
    for member in described.members:
        if member.kind == "method":
            yield _code(member.signature)
            yield markdown_of(member.text)


def _is_listed(member: Member, described: PublicClass) -> bool:
    """Fields without words are in the signature of the constructor already."""
    if member.kind == "field":
        return bool(member.text) or not described.constructor
    return member.kind == "property"


def _field(member: Member) -> str:
    words = re.sub(r"\s+", " ", member.text)
    return f"- `{member.signature}`" + (f": {words}" if words else "")


def _code(text: str) -> str:
    return f"```pyi\n{text}\n```"


def main(arguments: list[str]) -> int:
    """Write the page, or check it; return the exit status."""
    text = page()
    if arguments not in ([], ["--check"]):
        sys.stderr.write(f"usage: {_COMMAND} [--check]\n")
        return 2
    is_new = not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text
    if arguments:
        if is_new:
            sys.stderr.write(f"{PAGE.relative_to(ROOT)} is not up to date: run {_COMMAND}\n")
        return int(is_new)
    if is_new:
        PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
