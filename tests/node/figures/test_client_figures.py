from node.figures.client_figures import client_figures
from tandem.wire.request_headers import ConsumerData, HeartbeatData, ProducerData
from tests.node.doubles import Broker, Client
from tests.node.figures.seen import by_name


def beat(broker: Broker, client_id: str, language: str, version: int) -> None:
    connection = Client({}).connection
    data = HeartbeatData(
        client_id, consumer_data_set=[ConsumerData("g")], producer_data_set=[ProducerData("p")]
    )
    broker.clients.heartbeat(data, connection, 0.0, language, version)
    broker.producers.heartbeat(data, connection, language, version, 0.0)


async def test_what_clients_call_themselves_makes_no_series() -> None:
    broker = Broker()
    beat(broker, "a", "JAVA", 479)
    beat(broker, "b", "JAVA", 479)
    for number in range(50):
        beat(broker, f"stranger-{number}", f"L{number}", 1000 + number)
    found = by_name(client_figures(broker.sources()))
    of_java = {"language": "java", "version": "v5_3_3", "protocol_type": "remoting"}
    others = {**of_java, "language": "other", "version": "other"}
    assert found["rocketmq_producer_connections"] == [(of_java, 2), (others, 50)]
    assert [value for _, value in found["rocketmq_consumer_connections"]] == [2, 50]
    assert found["rocketmq_consumer_connections"][0][0]["consumer_group"] == "g"
