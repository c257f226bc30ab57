"""The examples that need no cluster. Those that do: tests/tandem/client/test_real_cluster.py."""

import os
import subprocess
import sys

import pytest

from tests.support.paths import ROOT

GOLDEN = ROOT / "tests" / "data" / "rocketmq-5.3.3"


@pytest.mark.slow
def test_a_store_of_rocketmq_is_looked_into() -> None:
    done = subprocess.run(
        [sys.executable, "examples/look_into_store.py", str(GOLDEN / "basic"), "TopicA", "U1"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.splitlines() == [
        "TopicA queue 1: 3 messages",
        "queue 1, offset 1, at byte 136: hello1",
    ]
