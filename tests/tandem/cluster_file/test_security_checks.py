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


@pytest.mark.parametrize("name", ["connections_max", "bytes_in_flight_max"])
def test_bounds_of_users_are_for_clusters_that_know_users(tmp_path: Path, name: str) -> None:
    (problem,) = problems(tmp_path, f"security: {{user_{name}: 5}}\n{FENCED}")
    assert problem.startswith(f"cluster.yaml:1: security.user_{name}: ")
    text = f"security: {{clients: authenticated, user_{name}: 5}}\n{FENCED}"
    assert getattr(load(tmp_path, text).security.user_quota, name) == 5
