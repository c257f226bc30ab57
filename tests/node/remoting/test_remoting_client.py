import pytest
import trio

from node.remoting.remoting_client import RemotingClient, RequestFailedError, open_client
from store.machine.network import ConnectionLost, Listener
from tandem.wire.errors import FrameTooLargeError
from tandem.wire.message import Host
from tandem.wire.remoting_command import RESPONSE_FLAG, RemotingCommand, encode_frame
from tests.node.doubles import FakeStream


def answer(opaque: int, code: int = 0, *, flag: int = RESPONSE_FLAG) -> bytes:
    return encode_frame(RemotingCommand(code, opaque, flag, "text" if code else None, body=b"b"))


async def test_the_answer_with_the_right_opaque_is_returned() -> None:
    stream = FakeStream()
    client = RemotingClient(stream)
    stream.arrive(answer(99) + answer(1, flag=0) + answer(1)[:7])
    stream.arrive(answer(1)[7:])
    assert (await client.request(21)).opaque == 1
    (sent,) = stream.take_frames()
    assert (sent.code, sent.opaque) == (21, 1)


async def test_a_refusal_carries_the_answer() -> None:
    stream = FakeStream()
    stream.arrive(answer(1, code=17))
    with pytest.raises(RequestFailedError) as caught:
        await RemotingClient(stream).request(105)
    assert caught.value.answer.code == 17
    assert caught.value.answer.body == b"b"


async def test_a_closed_connection_is_lost() -> None:
    stream = FakeStream()
    stream.end()
    with pytest.raises(ConnectionLost):
        await RemotingClient(stream).request(105)


async def test_garbage_is_the_peers_fault() -> None:
    stream = FakeStream()
    stream.arrive(b"\x7f" * 12)
    with pytest.raises(FrameTooLargeError):
        await RemotingClient(stream).request(105)


class OneStream:
    """A network with one place, which answers after a while."""

    def __init__(self, delay_seconds: float = 0) -> None:
        self.stream = FakeStream(Host("10.0.0.2", 10911))
        self._delay_seconds = delay_seconds

    async def connect(self, host: str, port: int, *, source: str | None) -> FakeStream:
        await trio.sleep(self._delay_seconds)
        return self.stream

    async def listen(self, host: str, port: int) -> Listener:
        raise NotImplementedError


async def test_the_connection_is_closed_at_the_end() -> None:
    network = OneStream()
    async with open_client(network, "10.0.0.2", 1, source=None, timeout_seconds=1):
        assert [network.stream.closed] == [False]
    assert network.stream.closed


async def test_a_peer_that_does_not_answer_the_call_is_lost(autojump_clock: object) -> None:
    with pytest.raises(ConnectionLost):
        async with open_client(OneStream(5), "10.0.0.2", 1, source=None, timeout_seconds=1):
            pass
