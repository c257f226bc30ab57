import anyio

from tandem.wire.message import MessageExt
from tests.tandem.client.consumer_world import FakeDelivery, received
from tests.tandem.client.fake_broker import message_ext


def test_it_is_a_message_and_passes_on_what_becomes_of_it() -> None:
    delivery = FakeDelivery()
    stored = message_ext(b"x")
    message = received(stored, delivery)
    assert isinstance(message, MessageExt)
    assert (message.body, message.msg_id) == (b"x", stored.msg_id)

    async def settle() -> None:
        message.done()
        await message.retry()
        await message.retry(5)
        await message.dead_letter()

    anyio.run(settle)
    assert delivery.said == ["done", None, 5, "dead letter"]
