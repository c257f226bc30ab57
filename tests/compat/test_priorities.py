"""Messages with priorities: RocketMQ 5.5's own client, at its broker and at ours."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.compat.programs import NotToBeHadError
from tests.compat.suites import FIVE_FIVE, run_priorities
from tests.compat.targets import TARGET_NAMES, Target, TargetName, running_rocketmq, running_target

pytestmark = [pytest.mark.long, pytest.mark.timeout(900), pytest.mark.xdist_group("rocketmq")]

SCENARIOS_COUNT = 6


@contextmanager
def running(name: TargetName, directory: Path) -> Iterator[Target]:
    """The table's RocketMQ is 5.3.3; here it is the one that has priorities."""
    if name == "real":
        with running_rocketmq(directory, FIVE_FIVE.jars) as target:
            yield target
    else:
        with running_target(name, directory) as target:
            yield target


@pytest.mark.parametrize("name", TARGET_NAMES)
def test_applications_with_priorities(tmp_path: Path, name: TargetName) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    try:
        with running(name, tmp_path) as target:
            outcomes = run_priorities(target, programs)
    except NotToBeHadError as error:
        pytest.skip(f"RocketMQ 5.5.0 cannot be fetched: {error}")
    assert [(each.name, each.reason) for each in outcomes if not each.ok] == []
    assert len(outcomes) == SCENARIOS_COUNT
