from pathlib import Path

import pytest

from tests.support.small_archive import SmallArchive


@pytest.fixture
def small(tmp_path: Path) -> SmallArchive:
    """A store of four closed files and an open one, archived and verified up to the open one."""
    return SmallArchive(tmp_path).archive()
