"""The drills that docs/drill.md shows, each as its reader runs it, on a cluster of its own."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Final

import msgspec
import pytest

from tandem.drill.errors import MissingRequirementError
from tandem.drill.outcomes import EXIT_BROKEN, EXIT_HELD, EXIT_INCONCLUSIVE
from tandem.drill.targets.rocketmq_jars import find_jars
from tests.support.loopback import own_network
from tests.support.page_blocks import understood_blocks
from tests.support.page_output import differs
from tests.support.paths import ROOT
from tests.support.processes import TANDEM

pytestmark = [pytest.mark.long, pytest.mark.fault, pytest.mark.timeout(2_400)]

BLOCKS: Final = [
    block for block in understood_blocks(ROOT / "docs" / "drill.md") if "drilled" in block.marks
]
DRILLS: Final = [
    pytest.param(line, id=line)
    for block in BLOCKS
    for line in re.findall(r"^(?:\$ )?(tandem drill [^#\n]*[^#\s])", block.text, re.MULTILINE)
]
ATTEMPTS: Final = 3
DRILL_SECONDS_MAX: Final = 800.0
DOWNLOADED: Final = "/opt/rocketmq-all-5.3.3"
"""Where the page has an unpacked RocketMQ."""


def test_the_page_has_drills() -> None:
    assert len(DRILLS) >= 7


@pytest.mark.parametrize("line", DRILLS)
def test_a_drill_that_is_shown_passes_as_it_is_written(line: str, tmp_path: Path) -> None:
    words = shlex.split(line, comments=True)[1:]
    if {"--rocketmq", "--spark-stream"} & set(words):
        _need("java", *(["mvn"] if "--rocketmq" in words else []))
    if DOWNLOADED in words:
        words[words.index(DOWNLOADED)] = str(_unpacked(tmp_path))
    addresses = [f"--address={own_network()}.{last}" for last in (1, 2, 3)]
    _tandem(tmp_path, "cluster", "init", *addresses)

    done = _tandem(tmp_path, *words)
    for _ in range(ATTEMPTS - 1):
        if _may_be_the_machine(done.returncode, tmp_path):
            done = _tandem(tmp_path, *words)
    if "Maven cannot fetch it" in done.stderr:
        pytest.skip(done.stderr)
    if _may_be_the_machine(done.returncode, tmp_path):
        pytest.skip(f"the machine was too slow for it, {ATTEMPTS} times")

    assert done.returncode == EXIT_HELD, f"{done.stdout}\n{done.stderr[-3_000:]}"
    (block,) = (each for each in BLOCKS if line in each.text)
    if block.language == "console":
        shown = block.text.partition("\n")[2]
        assert not differs(shown, done.stdout, frozenset(block.listed("varies")))


def _tandem(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*TANDEM, *words],
        check=False,
        capture_output=True,
        text=True,
        timeout=DRILL_SECONDS_MAX,
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def _may_be_the_machine(status: int, directory: Path) -> bool:
    """Whether a drill says that the machine was slow, and breaks no promise."""
    if status != EXIT_BROKEN:
        return status == EXIT_INCONCLUSIVE
    summary = msgspec.json.decode((directory / "report" / "summary.json").read_bytes())
    return bool(summary["late_seconds_max"] > 0 and summary["promises_broken"] == 0)


def _need(*programs: str) -> None:
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"needs `{program}`")


def _unpacked(directory: Path) -> Path:
    """RocketMQ's jars, as an archive of it has them."""
    try:
        jars = find_jars("maven:5.3.3").class_path.split(os.pathsep)
    except MissingRequirementError as error:
        pytest.skip(str(error))
    place = directory / "rocketmq-all-5.3.3"
    (place / "lib").mkdir(parents=True)
    for jar in jars:
        (place / "lib" / Path(jar).name).symlink_to(jar)
    return place
