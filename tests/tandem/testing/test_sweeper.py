from pathlib import Path

import pytest

from tandem.testing.sweeper import Sweeper
from tests.support.patience import wait_until

pytestmark = [pytest.mark.fault, pytest.mark.slow]


def test_what_is_left_at_the_end_of_the_block_is_removed(tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    (directory / "data").mkdir(parents=True)
    with Sweeper() as sweeper:
        sweeper.watch(directory)
        assert directory.exists()
    wait_until(lambda: not directory.exists())


def test_a_sweeper_that_was_given_nothing_removes_nothing(tmp_path: Path) -> None:
    with Sweeper():
        pass
    assert tmp_path.is_dir()
