import json

import pytest

from tandem.cli.topic import _attribute, perm_text
from tandem.client import BrokerError, RouteNotFoundError
from tandem.testing import RunningCluster
from tandem.wire.response_code import ResponseCode
from tests.tandem.cli.conftest import Tandem

pytestmark = [pytest.mark.fault, pytest.mark.xdist_group("one cluster of the command line")]


def test_a_created_topic_is_listed_with_its_route(tandem: Tandem, cluster: RunningCluster) -> None:
    created = tandem("topic", "create", "made", "--queues", "3")
    assert created.stdout == "topic made has 3 queues\n"
    assert "made" in tandem("topic", "list").stdout.splitlines()
    assert "TBW102" not in tandem("topic", "list").stdout.splitlines()
    assert "TBW102" in tandem("topic", "list", "--all").stdout.splitlines()
    assert "made" in json.loads(tandem("topic", "list", "--format", "json").stdout)
    route = tandem("topic", "route", "made").stdout
    assert "broker-a" in route
    assert f"0: {cluster.spec.nodes[0].client_address}" in route


def test_a_name_that_no_broker_takes_is_refused(tandem: Tandem) -> None:
    with pytest.raises(BrokerError) as caught:
        tandem("topic", "create", "made of air")
    assert caught.value.code == ResponseCode.INVALID_PARAMETER


def test_a_topic_is_described_altered_and_deleted(tandem: Tandem) -> None:
    tandem("topic", "create", "whole", "--queues", "2")
    tandem("produce", "whole", input="one\ntwo\nthree\n")
    found = json.loads(tandem("topic", "describe", "whole", "--format", "json").stdout)
    assert sum(queue["message_count"] for queue in found["queues"]) == 3
    assert found["brokers"][0]["perm"] == 6
    table = tandem("topic", "describe", "whole").stdout
    assert table.splitlines()[0] == "topic            whole"
    assert "last stored" in table
    lines = tandem("topic", "describe", "whole", "--format", "jsonl").stdout.splitlines()
    assert [json.loads(line)["queue_id"] for line in lines] == [0, 1]

    tandem("topic", "alter", "whole", "--queues", "4", "--perm", "r")
    altered = json.loads(tandem("topic", "describe", "whole", "--format", "json").stdout)
    assert (altered["brokers"][0]["read_queue_nums"], altered["brokers"][0]["perm"]) == (4, 4)

    assert tandem("topic", "delete", "whole", "--yes").stdout == "topic whole deleted\n"
    for verb in (["describe"], ["delete", "--yes"], ["alter", "--queues", "1"]):
        with pytest.raises(RouteNotFoundError) as caught:
            tandem("topic", verb[0], "whole", *verb[1:])
        assert (caught.value.topic, caught.value.may_pass) == ("whole", False)


@pytest.mark.parametrize(
    "line",
    [
        ["alter", "T"],
        ["alter", "T", "--perm", "x"],
        ["create", "T", "--perm", "6"],
        ["alter", "T", "-a", "x"],
        ["alter", "T", "-a", "=x"],
        ["alter", "T", "-a", "x=1,y=2"],
    ],
)
def test_what_cannot_be_changed_is_said_before_anybody_is_asked(
    tandem: Tandem, line: list[str]
) -> None:
    done = tandem("topic", *line)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("error: Invalid value")


def test_attributes_are_set_and_taken_away() -> None:
    assert _attribute("message.type=FIFO") == ("message.type", "FIFO")
    assert _attribute("message.type-") == ("message.type", None)


@pytest.mark.parametrize(("perm", "text"), [(6, "rw"), (7, "rw"), (4, "r"), (2, "w"), (0, "none")])
def test_permissions_are_words(perm: int, text: str) -> None:
    assert perm_text(perm) == text
