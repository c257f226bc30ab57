"""The pages of `docs/operations`, played one after the other on machines of their own."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.operations.machines import Machines, machines
from tests.support.page_blocks import read_page
from tests.support.paths import ROOT

# Six processes, gigabytes of files, every page after the one before: ten minutes.
pytestmark = [
    pytest.mark.fault,
    pytest.mark.long,
    pytest.mark.slow,
    pytest.mark.timeout(7_200),
    pytest.mark.xdist_group("rehearsal"),
]

PAGES: Final = ROOT / "docs/operations"
INDEX: Final = PAGES / "README.md"


def pages_in_order() -> list[str]:
    """The pages of the index."""
    return re.findall(r"^\| \[(\S+\.md)\]", INDEX.read_text(), re.MULTILINE)


PLAYED: Final = [
    page
    for page in pages_in_order()
    if any("on" in block.marks for block in read_page(PAGES / page))
]


ETCD: Final = Path("/usr/bin/etcd")
"""Where the unit of the page has it, and Debian's package etcd-server puts it."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    if not ETCD.exists():
        pytest.skip(f"needs {ETCD}, of Debian's package etcd-server")
    with machines(tmp_path_factory.mktemp("rehearsal")) as made:
        yield made


@pytest.mark.parametrize("page", PLAYED)
def test_a_page_does_what_it_says_after_those_before_it(world: Machines, page: str) -> None:
    world.play(PAGES / page)
