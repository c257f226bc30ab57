"""Compaction logs as RocketMQ's broker has written them, and what can be wrong with them."""

import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tandem.log.compaction_check import check_compaction
from tandem.log.findings import KINDS, FindingList
from tests.support.paths import ROOT

VECTORS: Final = ROOT / "tests/data/rocketmq-5.3.3/compaction"
LAST: Final = f"{55_200:020d}"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for packed in VECTORS.rglob("*.xz"):
        path = tmp_path / packed.relative_to(VECTORS).with_suffix("")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(lzma.decompress(packed.read_bytes()))
    return tmp_path


def kinds(root: Path) -> list[str]:
    found = FindingList()
    check_compaction(root, found)
    return [each.kind for each in found.in_order()]


def log(root: Path, name: str = "0" * 20) -> Path:
    return root / "compaction/compactionLog/State/0" / name


def cq(root: Path, name: str = "0" * 20) -> Path:
    return root / "compaction/compactionCq/State/0" / name


def change(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def test_what_rocketmq_has_written_is_sound(root: Path) -> None:
    assert kinds(root) == []


def test_a_store_without_such_topics_has_nothing_to_be_found(tmp_path: Path) -> None:
    assert kinds(tmp_path) == []


@pytest.mark.parametrize(
    ("act", "kind"),
    [
        (lambda root: change(log(root), 90), "compaction-record"),
        (lambda root: change(log(root), 20), "compaction-record"),
        (lambda root: change(log(root), 4), "compaction-record"),
        (lambda root: change(cq(root), 7), "compaction-unit"),
        (lambda root: cq(root).unlink(), "compaction-pair"),
        (lambda root: log(root).rename(log(root, "0" * 20 + ".delete")), "compaction-pair"),
    ],
)
def test_what_is_wrong_is_found(root: Path, act: Callable[[Path], object], kind: str) -> None:
    act(root)
    assert set(kinds(root)) == {kind}
    assert KINDS[kind].severity == "damage"


def test_half_of_a_last_pair_is_what_a_stop_leaves(root: Path) -> None:
    cq(root, LAST).unlink()
    assert kinds(root) == []


def test_a_swap_that_was_begun_is_finished_by_the_next_start(root: Path) -> None:
    (log(root).parent / "compacting").mkdir()
    (log(root).parent / "compacting/swap.json").write_text("{}")
    assert kinds(root) == ["compaction-swap"]
