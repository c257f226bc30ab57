"""Networks of tests: none twice, none of another worker, and none that a cluster has claimed."""

import secrets

import pytest

from tandem.testing import cluster_files
from tandem.testing.addresses import claimed_network
from tests.support import loopback


def test_workers_have_networks_of_their_own_and_none_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn: dict[str, list[str]] = {}
    for worker in ("gw0", "gw1", "gw15"):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", worker)
        drawn[worker] = [loopback.own_network() for _ in range(300)]
    every = [network for networks in drawn.values() for network in networks]
    assert len(every) == len(set(every))
    second = [{network.split(".")[1] for network in networks} for networks in drawn.values()]
    assert not second[0] & second[1]
    assert not second[1] & second[2]
    assert not {"0", "255"} & {each for of_worker in second for each in of_worker}


def test_what_a_cluster_has_claimed_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with claimed_network() as network:
        _, second, third = network.prefix.split(".")
        lots = iter([int(second), 77])
        monkeypatch.setattr(secrets, "choice", lambda _: next(lots))
        monkeypatch.setattr(secrets, "randbelow", lambda _: int(third))
        assert loopback.own_network() == f"127.77.{third}"


def test_cluster_files_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loopback, "own_network", lambda: "127.3.4")
    assert vars(cluster_files)["random_network"]().prefix == "127.3.4"
