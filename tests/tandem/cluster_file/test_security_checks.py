from pathlib import Path

import pytest

from tests.tandem.cluster_file.files import FENCED, load, problems


def test_brokers_of_rocketmq_are_named_with_their_address(tmp_path: Path) -> None:
    text = "security: {rocketmq_brokers: [broker-b@10.0.0.5]}\n" + FENCED
    assert load(tmp_path, text).security.admitted_brokers == {("broker-b", "10.0.0.5")}


@pytest.mark.parametrize("entry", ["broker-b", "@10.0.0.5", "broker-b@host", "broker-b@", "b@1.2"])
def test_an_entry_that_admits_nobody_is_refused(tmp_path: Path, entry: str) -> None:
    (problem,) = problems(tmp_path, f'security: {{rocketmq_brokers: ["{entry}"]}}\n{FENCED}')
    assert problem.startswith("cluster.yaml:1: security.rocketmq_brokers: ")
    assert "write broker-b@10.0.0.5" in problem
