from node.figures.wait_figures import wait_figures
from tests.node.doubles import Broker
from tests.node.figures.seen import by_name, values


async def test_what_puts_waited_for_and_how_that_ended() -> None:
    broker = Broker()
    broker.put_times.replication.count(0.003, 7)
    broker.put_times.acks["replicated", "send_ok"] += 7
    found = list(wait_figures(broker.sources()))
    assert values(found)["tandem_replication_seconds_count"] == 7
    assert values(found)["tandem_disk_sync_seconds_count"] == 0
    assert by_name(found)["tandem_acks_total"] == [
        ({"contract": "replicated", "outcome": "send_ok"}, 7)
    ]
