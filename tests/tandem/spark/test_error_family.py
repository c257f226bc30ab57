"""Errors of one name are one: who catches it from one source catches it from all."""

import ast
import re

import pytest

from tandem import data_file
from tandem.log import errors as log_errors
from tandem.spark import errors
from tandem.spark.archive.errors import ArchiveError, LostBeforeArchivedError
from tests.support.paths import ROOT


@pytest.mark.slow
def test_no_two_errors_have_one_name() -> None:
    names: dict[str, list[str]] = {}
    for file in sorted((ROOT / "tandem").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and re.fullmatch(r"[A-Z]\w+Error", node.name):
                names.setdefault(node.name, []).append(str(file.relative_to(ROOT)))
    twice = {name: files for name, files in names.items() if len(files) > 1}
    assert twice.pop("NotAStoreError") == [
        "tandem/data_file.py",
        "tandem/log/errors.py",
        "tandem/spark/errors.py",
    ]
    assert twice == {}


@pytest.mark.parametrize(
    ("raised", "caught"),
    [
        (log_errors.NotAStoreError, data_file.NotAStoreError),
        (errors.NotAStoreError, data_file.NotAStoreError),
        (errors.NotAStoreError, errors.SparkSourceError),
        (LostBeforeArchivedError, errors.DataLossError),
        (LostBeforeArchivedError, ArchiveError),
    ],
)
def test_what_is_caught_by_its_family_is_caught(
    raised: type[Exception], caught: type[Exception]
) -> None:
    assert issubclass(raised, caught)
