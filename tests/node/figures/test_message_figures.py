import msgspec

from node.figures.message_figures import message_figures
from tandem.wire.request_headers import TopicConfig
from tests.node.doubles import Broker
from tests.node.figures.seen import by_name


async def test_what_came_and_what_went_out() -> None:
    broker = Broker()
    broker.topics.update(
        TopicConfig(topic_name="F", attributes={"message.type": "FIFO"}), TopicConfig("T")
    )
    broker.stats.came("T", 3, 300)
    broker.stats.came("F", 1, 100)
    broker.stats.handed_out("g", "T", 0, 2, 2, 200)
    broker.stats.sent_back("g", "%RETRY%g")
    found = by_name(message_figures(broker.sources()))
    of_t = {"topic": "T", "message_type": "unspecified", "is_system": "false"}
    of_f = {"topic": "F", "message_type": "fifo", "is_system": "false"}
    of_group = {
        "topic": "T",
        "consumer_group": "g",
        "is_retry": "false",
        "is_system": "false",
    }
    assert found == {
        "rocketmq_messages_in_total": [(of_t, 3), (of_f, 1)],
        "rocketmq_throughput_in_total": [(of_t, 300), (of_f, 100)],
        "rocketmq_messages_out_total": [(of_group, 2)],
        "rocketmq_throughput_out_total": [(of_group, 200)],
        "tandem_messages_sent_back_total": [
            ({**of_group, "topic": "%RETRY%g", "is_retry": "true"}, 1)
        ],
    }


async def test_only_the_master_says_what_came() -> None:
    broker = Broker(is_slave=True)
    broker.stats.came("T", 3, 300)
    assert by_name(message_figures(broker.sources())) == {}


async def test_the_exporters_names_are_there_if_they_are_wanted() -> None:
    broker = Broker()
    broker.stats.came("T", 3, 300)
    broker.stats.handed_out("g", "T", 0, 2, 2, 200)
    sources = msgspec.structs.replace(broker.sources(), with_exporter_names=True)
    found = by_name(message_figures(sources))
    assert found["rocketmq_producer_tps"] == [({"topic": "T"}, 0.0)]
    assert found["rocketmq_consumer_tps"] == [({"topic": "T", "group": "g"}, 0.0)]
    assert ({"topic": "T"}, 0) in found["rocketmq_producer_offset"]
