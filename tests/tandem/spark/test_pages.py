"""The blocks of README.md and `docs/` that need Spark: run here, where one session is for all.

They find a drill that was played before: `data/broker-a-0` and so on, and `drill/ledger.parquet`.
"""

import contextlib
import io
import re
import runpy
import shutil
from pathlib import Path

import pytest

from tests.support.page_blocks import Block, pages, understood_blocks
from tests.support.page_output import differs
from tests.support.page_steps import RunLine, WriteFile, steps_of
from tests.support.planted_drill import PlantedDrill

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark")]


def blocks_of(page: Path) -> list[Block]:
    """What needs Spark, and what it prints."""
    found: list[Block] = []
    before = None
    for block in understood_blocks(page):
        if block.needs_spark or ("output" in block.marks and before in found):
            found.append(block)
        before = block
    return found


PAGES = {page: blocks for page in pages() if (blocks := blocks_of(page))}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
@pytest.mark.usefixtures("spark")
def test_a_page_does_with_spark_what_it_says(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, _ = PlantedDrill().write(tmp_path / "data")
    (tmp_path / "drill").mkdir()
    shutil.move(ledger, tmp_path / "drill")
    monkeypatch.chdir(tmp_path)
    for step in steps_of(PAGES[page]):
        if isinstance(step, WriteFile):
            # Spark was started elsewhere, and its workers count relative paths from there.
            text = re.sub(r'"(?=(?:data|drill)/)', f'"{tmp_path}/', step.text)
            Path(step.name).write_text(text, encoding="utf-8")
        else:
            run_here(step)


def run_here(step: RunLine) -> None:
    """In this process, which has the session; a process of its own would start another JVM."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        runpy.run_path(step.line.removeprefix("python "))
    if step.shown:
        difference = differs(step.shown, printed.getvalue(), step.varies)
        assert not difference, f"{step.place}\n{difference}"
