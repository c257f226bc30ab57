"""What the handlers of a broker share."""

from tests.node.doubles import BROKER, Broker


async def test_settings_reach_the_parts() -> None:
    broker = Broker()
    assert broker.host == BROKER
    assert broker.timeout_seconds == 3
    assert broker.config.cluster.broker.recall_message_enable
    broker.set(recall_message_enable=False)
    assert not broker.config.cluster.broker.recall_message_enable
