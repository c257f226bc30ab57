"""Whoever copies an example gets all name servers with it: one that has just started knows less."""

import ast
import re

import pytest

from tests.support.page_blocks import pages, read_page
from tests.support.paths import ROOT
from tests.support.source_tree import SOURCES, syntax_tree

# Where all sources are read anyway.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("architecture")]

ADDRESS = re.compile(r"[\w.-]+:9876\b")

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def texts() -> dict[str, str]:
    """Paragraphs and blocks of pages, examples, and docstrings, by where they are."""
    found = {str(file.relative_to(ROOT)): file.read_text() for file in EXAMPLES}
    for page in pages():
        found |= {block.place: block.text for block in read_page(page)}
        prose = re.sub(r"```[\s\S]*?```", "", page.read_text())
        for number, part in enumerate(re.split(r"\n{2,}", prose), 1):
            found[f"{page.relative_to(ROOT)}, paragraph {number}"] = part
    for file in SOURCES:
        if not ADDRESS.search(file.read_text()):
            continue
        for node in ast.walk(syntax_tree(file)):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                where = f"{file.relative_to(ROOT)} {getattr(node, 'name', '')}"
                found[where] = ast.get_docstring(node) or ""
    return found


def test_no_example_and_no_page_gives_one_name_server_alone() -> None:
    alone = [where for where, text in texts().items() if len({*ADDRESS.findall(text)}) == 1]
    assert alone == [], "give all three of the example cluster"
