"""The blocks of README.md and `docs/` that need Spark: run here, where one session is for all.

A page whose programs ask a cluster has the cluster of the example, and all its blocks are played
here. Other pages find a drill that was played before: `data/broker-a-0` and so on, and
`drill/ledger.parquet`.
"""

import contextlib
import io
import re
import runpy
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.loopback import own_network
from tests.support.page_blocks import (
    A_CLUSTER,
    Block,
    apart_from_spark,
    pages,
    understood_blocks,
)
from tests.support.page_output import differs
from tests.support.page_room import Room
from tests.support.page_steps import RunLine, WriteFile, steps_of
from tests.support.paths import ROOT
from tests.support.planted_drill import PlantedDrill

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark")]

PAGES = {
    str(page.relative_to(ROOT)): blocks
    for page in pages()
    if (blocks := apart_from_spark(understood_blocks(page))[1])
}


def to_play(*, with_long: bool) -> list[str]:
    return [
        page
        for page, blocks in PAGES.items()
        if programs(page, with_long=with_long)
        and (not with_long or any("long" in block.marks for block in blocks))
    ]


def programs(page: str, *, with_long: bool) -> list[Block]:
    blocks = [block for block in PAGES[page] if with_long or "long" not in block.marks]
    return blocks if any(block.is_run for block in blocks) else []


@contextlib.contextmanager
def example_cluster(directory: Path) -> Iterator[Room]:
    room = Room(directory, own_network())
    room.write("cluster.yaml", (ROOT / "cluster.yaml").read_text(encoding="utf-8"))
    room.play([RunLine("the cluster of all pages", "tandem cluster up --detach")])
    yield room
    room.play([RunLine("the cluster of all pages", "tandem cluster down")])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    with example_cluster(tmp_path_factory.mktemp("spark-pages")) as room:
        yield room


@pytest.fixture
def cluster_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    """For a page that is played a second time: its topics have messages on the other one."""
    with example_cluster(tmp_path_factory.mktemp("spark-page")) as room:
        yield room


@pytest.fixture
def room(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Room | None:
    """Where the page finds what it speaks of: with a cluster, or without."""
    monkeypatch.chdir(tmp_path)
    blocks = PAGES[request.getfixturevalue("page")]
    if any(A_CLUSTER in block.text for block in blocks if block.needs_spark):
        is_played_again = request.node.get_closest_marker("long") is not None
        name = "cluster_of_its_own" if is_played_again else "cluster"
        cluster: Room = request.getfixturevalue(name)
        for name in ("cluster.yaml", "data"):
            (tmp_path / name).symlink_to(cluster.directory / name)
        return Room(tmp_path, cluster.network)
    ledger, _ = PlantedDrill().write(tmp_path / "data")
    (tmp_path / "drill").mkdir()
    # Pages read the topic of their own examples, too: the store knows it.
    (tmp_path / "data/broker-a-0/consumequeue/Orders/0").mkdir(parents=True)
    shutil.move(ledger, tmp_path / "drill")
    return None


def play(blocks: list[Block], room: Room | None) -> None:
    for step in steps_of(blocks):
        if isinstance(step, WriteFile):
            write(step, room)
        elif (
            step.line.startswith("python block_")
            and "tandem.spark" in Path(step.line.split()[1]).read_text()
        ):
            run_here(step, room)
        else:
            assert room is not None, step.place
            room.play([step])


def write(step: WriteFile, room: Room | None) -> None:
    text = step.text
    if "tandem.spark" in text:
        # Spark was started elsewhere, and its workers count relative paths from there.
        text = re.sub(r'"(?=(?:data|drill|out)/)', f'"{Path.cwd()}/', text)
    if room is not None:
        room.write(step.name, text)
    else:
        Path(step.name).write_text(text, encoding="utf-8")


def run_here(step: RunLine, room: Room | None) -> None:
    """In this process, which has the session; a process of its own would start another JVM."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        # As __main__, as its user does: else Spark cannot send its classes to workers.
        runpy.run_path(step.line.removeprefix("python "), run_name="__main__")
    if step.shown:
        said = printed.getvalue()
        if room is not None:
            said = said.replace(f"{room.network}.", "127.0.0.")
        difference = differs(step.shown, said, step.varies)
        assert not difference, f"{step.place}\n{difference}"


@pytest.mark.parametrize("page", to_play(with_long=False))
@pytest.mark.usefixtures("spark")
def test_a_page_does_with_spark_what_it_says(page: str, room: Room | None) -> None:
    play(programs(page, with_long=False), room)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", to_play(with_long=True))
@pytest.mark.usefixtures("spark")
def test_a_page_does_with_spark_what_it_says_also_where_that_takes_long(
    page: str, room: Room | None
) -> None:
    play(programs(page, with_long=True), room)
