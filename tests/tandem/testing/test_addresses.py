import socket
import subprocess
import sys

import msgspec
import pytest

from tandem.cluster.errors import WrongSystemError
from tandem.testing import addresses
from tandem.testing.addresses import Network, Ports, claimed_network
from tandem.testing.errors import NoAddressesError
from tests.support.processes import ENVIRONMENT

OTHER_PROCESS = """
import sys
from tandem.testing import addresses
addresses.random_network = lambda: addresses.Network(prefix=sys.argv[1])
addresses.ATTEMPTS_MAX = 2
with addresses.claimed_network():
    pass
"""


def test_a_network_is_claimed_for_one_process_and_is_free_after_the_block() -> None:
    with claimed_network() as network:
        claim = [sys.executable, "-P", "-c", OTHER_PROCESS, network.prefix]
        refused = subprocess.run(
            claim, env=ENVIRONMENT, capture_output=True, text=True, check=False
        )
        assert "NoAddressesError: no free addresses" in refused.stderr
    again = subprocess.run(claim, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert (again.returncode, again.stderr) == (0, "")


def test_a_network_that_is_taken_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = iter(["127.7.7", "127.7.7", "127.7.8"])
    monkeypatch.setattr(addresses, "random_network", lambda: Network(prefix=next(rows)))
    with claimed_network() as first, claimed_network() as second:
        assert (first.prefix, second.prefix) == ("127.7.7", "127.7.8")
        assert second.address(3) == "127.7.8.3"


def test_other_ports_are_taken_where_somebody_listens_at_all_addresses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("0.0.0.0", 0)) as everywhere:
        busy = everywhere.getsockname()[1]
        usual = Ports(client=busy)
        monkeypatch.setattr(
            addresses, "random_network", lambda: Network(prefix="127.9.9", ports=usual)
        )
        with claimed_network() as network:
            taken = msgspec.structs.astuple(network.ports)
    assert busy not in taken
    assert taken == tuple(range(taken[0], taken[0] + 5))


def test_it_ends_where_no_port_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "_is_free", lambda _address, _port: False)
    monkeypatch.setattr(addresses, "ATTEMPTS_MAX", 3)
    with pytest.raises(NoAddressesError), claimed_network():
        pass


def test_another_system_is_refused_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    with pytest.raises(WrongSystemError), claimed_network():
        pass
