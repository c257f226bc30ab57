import pytest

from node.broker.vip_channel import VipChannel
from node.remoting.connection import Connection, Outbox
from node.remoting.gathering import Part
from tandem.wire.frame_buffer import FrameBuffer
from tandem.wire.read_together import ReadTogether
from tandem.wire.remoting_command import ONEWAY_FLAG, RESPONSE_FLAG, RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.response_code import ResponseCode
from tests.node.doubles import FakeStream


class Seen:
    """What reaches the dispatcher of the first port."""

    def __init__(self) -> None:
        self.codes: list[int] = []

    def take_run(self, _connection: Connection, _frames: FrameBuffer) -> bool:
        return False

    take_pulls = take_run

    def take_together(self, _parts: list[Part], _came: ReadTogether) -> bool:
        return False

    def dispatch(self, connection: Connection, command: RemotingCommand) -> None:
        self.codes.append(command.code)


class Port:
    """The second port, with one connection."""

    def __init__(self) -> None:
        self.seen = Seen()
        self.channel = VipChannel(self.seen)
        self._outbox = Outbox()
        self._stream = FakeStream()
        self.connection = Connection(self._stream, self._outbox)

    def ask(self, code: int, flag: int = 0) -> list[RemotingCommand]:
        self.channel.dispatch(self.connection, RemotingCommand(code, 7, flag))
        self.connection.end_round()
        self._outbox.flush()
        return self._stream.take_frames()


@pytest.mark.parametrize(
    "code", [RequestCode.SEND_MESSAGE_V2, RequestCode.GET_ALL_TOPIC_CONFIG, 9999]
)
async def test_all_but_reads_go_the_way_of_the_first_port(code: int) -> None:
    port = Port()
    assert port.ask(code) == []
    assert port.seen.codes == [code]


@pytest.mark.parametrize("code", [RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE])
async def test_a_read_is_refused_in_words(code: int) -> None:
    port = Port()
    (answer,) = port.ask(code)
    assert (answer.code, answer.opaque) == (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, 7)
    assert port.seen.codes == []


async def test_a_read_that_wants_no_answer_gets_none() -> None:
    assert Port().ask(RequestCode.PULL_MESSAGE, ONEWAY_FLAG) == []


async def test_an_answer_is_never_a_read() -> None:
    port = Port()
    assert port.ask(RequestCode.PULL_MESSAGE, RESPONSE_FLAG) == []
    assert port.seen.codes == [RequestCode.PULL_MESSAGE]


async def test_requests_that_came_together_are_one_run_there_too() -> None:
    port = Port()
    assert port.channel.take_run == port.seen.take_run


async def test_no_pulls_are_taken_together_there() -> None:
    channel = Port().channel
    assert channel.take_run is not None
    assert channel.take_pulls is None


async def test_runs_of_several_connections_go_the_way_of_the_first_port() -> None:
    port = Port()
    assert port.channel.take_together == port.seen.take_together
