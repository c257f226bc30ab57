"""Every code block of README.md and `docs/` does what its page says; CONTRIBUTING.md has the rules.

A page that starts a cluster has one of its own. All others share one, the example of the
repository, and run in directories of their own in which `cluster.yaml` and `data` are found.
"""

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tandem.cluster_file.load import load_config
from tandem.drill.scenario_file import read_scenario
from tandem.drill.targets.process_file import read_process_file
from tandem.spark.jobs.settings import JOBS, load_settings
from tests.support.loopback import own_network
from tests.support.page_blocks import (
    Block,
    apart_from_spark,
    pages,
    read_page,
    understood_blocks,
)
from tests.support.page_room import Room, tool_forker
from tests.support.page_steps import RunLine, steps_of
from tests.support.paths import ROOT

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.xdist_group("pages")]

BLOCKS = {str(page.relative_to(ROOT)): understood_blocks(page) for page in pages()}


def programs(page: str, *, with_long: bool) -> list[Block]:
    """What runs here; what needs a Spark session: tests/tandem/spark/test_pages.py."""
    without_spark, _ = apart_from_spark(BLOCKS[page])
    return [block for block in without_spark if with_long or "long" not in block.marks]


def starts_cluster(blocks: list[Block]) -> bool:
    return any(
        f"tandem cluster {verb}" in block.text
        for block in blocks
        if block.is_run
        for verb in ("up", "init")
    )


def to_play(*, with_long: bool) -> list[str]:
    return [
        page
        for page, blocks in BLOCKS.items()
        if any(block.is_run for block in programs(page, with_long=with_long))
        and (not with_long or any("long" in block.marks for block in blocks))
    ]


@pytest.fixture(scope="module")
def forker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with tool_forker(tmp_path_factory.mktemp("tools")) as place:
        yield place


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    room = Room(tmp_path_factory.mktemp("pages"), own_network())
    room.write("cluster.yaml", (ROOT / "cluster.yaml").read_text(encoding="utf-8"))
    room.play([RunLine("the cluster of all pages", "tandem cluster up --detach")])
    yield room
    room.play([RunLine("the cluster of all pages", "tandem cluster down")])


@pytest.fixture
def room(request: pytest.FixtureRequest, forker: Path, tmp_path: Path) -> Iterator[Room]:
    """A room with a cluster, or one where the page starts it."""
    if not starts_cluster(programs(request.getfixturevalue("page"), with_long=True)):
        cluster: Room = request.getfixturevalue("shared")
        for name in ("cluster.yaml", "data"):
            (tmp_path / name).symlink_to(cluster.directory / name)
        yield Room(tmp_path, cluster.network, forker=forker)
        return
    room = Room(tmp_path, own_network(), forker=forker)
    yield room
    room.play([RunLine("the end of the page", "tandem cluster down || true")])


@pytest.mark.parametrize("page", BLOCKS)
def test_every_block_and_mark_is_understood(page: str) -> None:
    read_page(ROOT / page)


@pytest.mark.parametrize("page", to_play(with_long=False))
def test_a_page_does_what_it_says(page: str, room: Room) -> None:
    room.play(steps_of(programs(page, with_long=False)))


@pytest.mark.long
@pytest.mark.parametrize("page", to_play(with_long=True))
def test_a_page_does_what_it_says_also_where_that_takes_long(page: str, room: Room) -> None:
    room.play(steps_of(programs(page, with_long=True)))


def data_blocks() -> Iterator[Block]:
    for blocks in BLOCKS.values():
        for block in blocks:
            if block.language in ("yaml", "json", "toml") and "not run" not in block.marks:
                yield block


@pytest.mark.parametrize("block", [*data_blocks()], ids=lambda block: block.place)
def test_a_file_that_is_shown_can_be_read(block: Block, tmp_path: Path) -> None:
    if block.language == "toml":
        tomllib.loads(block.text)
    elif block.language == "json":
        for value in (
            [block.text] if block.text.startswith(("{\n", "[")) else block.text.splitlines()
        ):
            json.loads(value)
    else:
        read_yaml(block.text, tmp_path / "shown.yaml")


def read_yaml(text: str, file: Path) -> None:
    """A scenario, a deployed cluster, settings of a job, a cluster file or a part of one."""
    content = yaml.safe_load(text)
    if job := re.match(r"# (\w+)\.yaml\n", text):
        file.write_text(text, encoding="utf-8")
        load_settings(JOBS[job[1]], file, {})
        return
    if "commands" in content:
        file.write_text(text, encoding="utf-8")
        read_process_file(file)
        return
    if "steps" in content:
        file.write_text(text, encoding="utf-8")
        read_scenario(file)
        return
    whole: dict[str, Any] = yaml.safe_load((ROOT / "cluster.yaml").read_text(encoding="utf-8"))
    for name, section in content.items():
        is_part = isinstance(section, dict) and "nodes" not in content
        whole[name] = whole.get(name, {}) | section if is_part else section
    file.write_text(yaml.safe_dump(whole), encoding="utf-8")
    load_config(file)
