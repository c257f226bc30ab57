import pytest

from tandem.client import BrokerError
from tandem.testing import RunningCluster
from tests.tandem.cli.conftest import Tandem

pytestmark = [pytest.mark.fault, pytest.mark.xdist_group("one cluster of the command line")]


def test_a_created_topic_is_listed_with_its_route(tandem: Tandem, cluster: RunningCluster) -> None:
    created = tandem("topic", "create", "made", "--queues", "3")
    assert created.stdout == "topic made has 3 queues\n"
    assert "made" in tandem("topic", "list").stdout.splitlines()
    route = tandem("topic", "route", "made").stdout
    assert "broker-a" in route
    assert f"0: {cluster.name_servers[0]}" in route


def test_a_name_that_no_broker_takes_is_refused_in_its_words(tandem: Tandem) -> None:
    with pytest.raises(BrokerError, match="made of air"):
        tandem("topic", "create", "made of air")
