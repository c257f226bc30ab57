"""The examples that need no cluster. Those that do: tests/tandem/client/test_real_cluster.py."""

import pytest

from tests.support.paths import GOLDEN
from tests.support.processes import run_example


@pytest.mark.slow
def test_a_store_of_rocketmq_is_looked_into() -> None:
    assert run_example("look_into_store.py", str(GOLDEN / "basic"), "TopicA", "U1") == [
        "TopicA queue 1: 3 messages",
        "queue 1, offset 1, at byte 136: hello1",
    ]
