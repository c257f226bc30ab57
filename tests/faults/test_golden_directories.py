"""Directories that released versions have left are opened by this one, and nothing is missing."""

from pathlib import Path
from typing import Final

import pytest

from tests.faults.golden_directories import KINDS, check, check_new, unpack, up, write_golden
from tests.support.paths import ROOT
from tests.support.processes import run_tandem

pytestmark = [pytest.mark.fault, pytest.mark.slow]

DIRECTORIES: Final = ROOT / "tests" / "data" / "directories"
ARCHIVES: Final = sorted(DIRECTORIES.glob("*/*.tar.xz"))


def test_there_are_some_of_every_version_and_kind() -> None:
    versions = {path.parent.name for path in ARCHIVES}
    assert versions
    assert {(path.parent.name, path.name) for path in ARCHIVES} == {
        (version, f"{kind}.tar.xz") for version in versions for kind in KINDS
    }


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: f"{path.parent.name}-{path.stem}")
async def test_a_directory_of_an_earlier_version_is_opened_and_has_everything(
    archive: Path, tmp_path: Path
) -> None:
    kind = archive.name.partition(".")[0]
    unpack(archive, tmp_path)
    for node in sorted((tmp_path / "data").glob("broker-*")):
        verified = run_tandem("log", "verify", str(node))
        assert verified.returncode == 0, (node.name, verified.stdout, verified.stderr)
    spec = write_golden(tmp_path, kind)
    async with up(spec):
        await check(spec)
        await check_new(spec)
    async with up(spec):
        await check_new(spec)
