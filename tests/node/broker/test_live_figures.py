from collections.abc import Iterator

from node.broker.live_figures import live_figures
from node.figures.figure import Figure
from node.handlers.parked_puts import ParkedPuts, WaitPolicy
from node.remoting.connection import Connection, Outbox
from node.remoting.server import Server
from tests.node.doubles import Broker
from tests.node.figures.seen import by_name, values


def nothing(_connection: Connection | None = None) -> None:
    pass


def figures_of(broker: Broker) -> Iterator[Figure]:
    server = Server(Outbox(), connections_max=4, after_round=nothing, on_closed=nothing)
    parked = ParkedPuts(WaitPolicy(), WaitPolicy(), broker.put_times)
    parked.room -= 3
    return live_figures(server, broker, parked=parked, rounds_count=8)


async def test_who_waits_and_for_what() -> None:
    found = values(figures_of(Broker()))
    assert (found["tandem_waiting_puts"], found["tandem_held_pulls"]) == (3, 0)
    assert found["tandem_request_rounds_total"] == 8


async def test_refusals_have_the_names_of_their_codes_and_a_stranger_makes_none() -> None:
    broker = Broker()
    broker.outbox.refused.update({17: 2, 777_001: 1, 777_002: 4})
    refused = by_name(figures_of(broker))["tandem_requests_refused_total"]
    assert refused == [({"code": "topic_not_exist"}, 2), ({"code": "other"}, 5)]
