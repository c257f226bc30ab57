"""What nodes answer is read off the wire whole, in pieces, and beside nonsense."""

import pytest
import trio
from trio.testing import MockClock

from node.simulated.disk import SimulatedDisk
from node.simulated.virtual_clock import WallClock
from tandem.wire.message import Host, offset_msg_id
from tandem.wire.remoting_command import RESPONSE_FLAG, RemotingCommand, encode_frame
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import PullMessageRequestHeader, SendMessageResponseHeader
from tandem.wire.response_code import ResponseCode
from tests.sim.classic.settings import draw_settings
from tests.sim.classic.simulation import cluster_config
from tests.sim.engine.client_watch import AskedPull, ClientWatch
from tests.sim.engine.node import Incarnation, SimulatedNode

CLIENT = Host("127.0.1.1", 50_001)


class Heard:
    """A watch over one node, and what it heard."""

    def __init__(self) -> None:
        config = cluster_config(draw_settings(0))
        settings = config.node(config.nodes[0].name)
        self.node = SimulatedNode(settings, SimulatedDisk(), WallClock())
        self.node.current = Incarnation(self.node, None)  # type: ignore[arg-type]
        self.server = Host(self.node.ip, settings.node.port)
        self.stored: list[list[int]] = []
        self.empty: list[AskedPull] = []
        self.watch = ClientWatch(
            [self.node],
            on_stored=lambda _, offsets: self.stored.append(offsets),
            on_empty=lambda _, pull: self.empty.append(pull),
        )

    def ask(self, *commands: RemotingCommand) -> None:
        data = b"".join(map(encode_frame, commands))
        self.watch.was_sent(CLIENT, self.server, data)

    def answer(self, *commands: RemotingCommand) -> None:
        for byte in b"".join(map(encode_frame, commands)):
            self.watch.was_sent(self.server, CLIENT, bytes((byte,)))


def send(opaque: int) -> RemotingCommand:
    return RemotingCommand(RequestCode.SEND_MESSAGE_V2, opaque, body=b"body")


def stored(opaque: int, *offsets: int, code: int = ResponseCode.SUCCESS) -> RemotingCommand:
    host = Host("127.0.0.1", 10911)
    ids = ",".join(offset_msg_id(host, offset) for offset in offsets)
    return RemotingCommand(code, opaque, RESPONSE_FLAG, ext=SendMessageResponseHeader(ids, 1, 7))


def pull(opaque: int) -> RemotingCommand:
    header = PullMessageRequestHeader("g", "orders", 1, 5, 32, 0, 0, 0, 0)
    return RemotingCommand(RequestCode.PULL_MESSAGE, opaque, ext=header)


async def test_answers_are_matched_with_what_was_asked(autojump_clock: MockClock) -> None:
    heard = Heard()
    heard.ask(send(1), pull(2), send(3), pull(4))
    asked_at = trio.current_time()
    await trio.sleep(1.0)
    heard.answer(stored(3, 400, 500), stored(1, 300))
    heard.answer(
        RemotingCommand(ResponseCode.PULL_NOT_FOUND, 2, RESPONSE_FLAG),
        RemotingCommand(ResponseCode.SUCCESS, 4, RESPONSE_FLAG),
    )
    assert heard.stored == [[400, 500], [300]]
    assert heard.empty == [AskedPull(asked_at, "orders", 1, 5)]


@pytest.mark.parametrize("code", [ResponseCode.FLUSH_SLAVE_TIMEOUT, ResponseCode.SYSTEM_ERROR])
async def test_only_send_ok_is_a_promise(code: int) -> None:
    heard = Heard()
    heard.ask(send(1))
    heard.answer(stored(1, 300, code=code))
    assert heard.stored == []


async def test_what_nobody_asked_or_everybody_garbles_is_left_alone() -> None:
    heard = Heard()
    heard.answer(stored(9, 300))
    heard.watch.was_sent(CLIENT, heard.server, b"\x00\x00\x00\x02\xff\xff\xff\xff")
    heard.ask(send(1))
    heard.answer(stored(1, 300))
    assert heard.stored == []


async def test_the_last_words_of_a_dead_process_are_not_heard() -> None:
    heard = Heard()
    heard.ask(send(1))
    heard.node.current = None
    heard.answer(stored(1, 300))
    assert heard.stored == []
