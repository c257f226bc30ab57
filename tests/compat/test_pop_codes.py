"""Requests of POP at their limits and beyond: what RocketMQ's broker answers, and ours."""

from pathlib import Path

import pytest

from tests.compat.pop_codes import CASES, codes_at, expected_at
from tests.compat.programs import NotToBeHadError
from tests.compat.targets import TARGET_NAMES, TargetName, running_target

pytestmark = [pytest.mark.long, pytest.mark.timeout(900), pytest.mark.xdist_group("rocketmq")]


@pytest.mark.parametrize("name", TARGET_NAMES)
def test_limits_are_answered_as_the_page_says(tmp_path: Path, name: TargetName) -> None:
    try:
        with running_target(name, tmp_path) as target:
            found = codes_at(target)
    except NotToBeHadError as error:
        pytest.skip(f"RocketMQ 5.3.3 cannot be fetched: {error}")
    expected = expected_at(name)
    assert set(found) == set(CASES)
    assert {case: (code, expected[case]) for case, code in found.items()} == {
        case: (code, code) for case, code in expected.items()
    }
