"""Signed requests that come together: the verdict about each is as if it had come alone."""

import random
from pathlib import Path

import msgspec
import pytest

from store.messages.put_message import MessagePuts
from tandem.cluster_file.choices import ClientAccess
from tandem.wire import native
from tandem.wire.acl_signature import with_acl_signature
from tandem.wire.frame_buffer import FrameBuffer
from tandem.wire.remoting_command import (
    RemotingCommand,
    SerializeType,
    encode_frame,
    text_fields,
)
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import SendMessageRequestHeader, SendMessageRequestHeaderV2
from tandem.wire.response_code import ResponseCode
from tests.node.security.users_world import (
    ALICE,
    AUTHENTICATED,
    AUTHORIZED,
    BOB,
    OPERATOR,
    STRANGER,
    Keys,
    as_user,
    classic_world,
    entry,
    make_user,
    order,
)
from tests.node.world import MASTER, World

pytestmark = pytest.mark.skipif(native.loops is None, reason="no C compiler at installation")

MAY = {
    "alice": {"T", "U"},
    "bob": {"T"},
    "tandem-operator": {"T", "U", "V"},
}
"""Who may send where."""

FRAMES = 150

PROPERTIES = "UNIQ_KEY\x017F00000100002A9F\x02WAIT\x01false\x02KEYS\x01k\x02"


def frame(
    chance: random.Random, opaque: int, clients: ClientAccess, keys: Keys, *, long: bool
) -> tuple[bytes, bool]:
    """Return a request to send, and whether it is to be taken."""
    topic = chance.choice("TTTTTTTTTUV")
    values = ("p", topic, "TBW102", 4, 0, 0, 1, 0, PROPERTIES)
    header: msgspec.Struct = (
        SendMessageRequestHeader(*values) if long else SendMessageRequestHeaderV2(*values)
    )
    code = RequestCode.SEND_MESSAGE if long else RequestCode.SEND_MESSAGE_V2
    body = chance.randbytes(chance.choice([0, 1, 100, 1000]))
    fields = text_fields(RemotingCommand(code, ext=header))
    if chance.random() < 0.2:
        fields["SecurityToken"] = "token"
    ext = with_acl_signature(*keys, fields, body)
    is_good = keys is not STRANGER
    spoil = chance.choice([*[""] * 25, "field", "body", "signature", "unsigned", "name"])
    if spoil == "field":
        ext["h" if not long else "flag"] = "7"
    elif spoil == "body":
        body += b"!"
    elif spoil == "signature":
        ext["Signature"] = ext["Signature"][::-1]
    elif spoil == "unsigned":
        ext = fields
    elif spoil == "name":
        ext["AccessKey"] = "bob" if keys is not BOB else "alice"
    command = RemotingCommand(
        code,
        opaque,
        ext=ext,
        body=body,
        serialize_type=chance.choice([SerializeType.JSON] * 20 + list(SerializeType)),
    )
    is_allowed = clients is AUTHENTICATED or topic in MAY.get(keys[0], ())
    return encode_frame(command), is_good and not spoil and is_allowed


def bursts(chance: random.Random, clients: ClientAccess) -> list[tuple[bytes, bool]]:
    """Return requests, some in a row of each sender."""
    frames: list[tuple[bytes, bool]] = []
    while len(frames) < FRAMES:
        keys = chance.choice([ALICE, ALICE, BOB, OPERATOR, STRANGER])
        long = chance.random() < 0.3
        for _ in range(chance.randrange(1, 20)):
            frames.append(frame(chance, len(frames), clients, keys, long=long))
    return frames


async def answers_to(
    world: World, data: bytes, count: int, *, ip: str = "10.0.0.50"
) -> dict[int, int]:
    """Return the codes of the answers, by opaque."""
    stream = await world.network.machine(ip).connect(MASTER, 10911, source=ip)
    await stream.send_all(data)
    frames = FrameBuffer()
    found: dict[int, int] = {}
    while len(found) < count:
        received = await stream.receive_some(65_536)
        if not received:
            break
        frames.receive_data(received)
        while (answer := frames.next_command()) is not None:
            found[answer.opaque] = answer.code
    await stream.aclose()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("clients", [AUTHORIZED, AUTHENTICATED])
@pytest.mark.parametrize("seed", range(15))
async def test_each_is_taken_or_refused_as_if_it_had_come_alone(
    tmp_path: Path,
    autojump_clock: object,
    monkeypatch: pytest.MonkeyPatch,
    clients: ClientAccess,
    seed: int,
) -> None:
    monkeypatch.setattr("node.security.guard.WRONG_SIGNATURES_MAX", 1_000)
    chance = random.Random(seed)
    runs: list[int] = []
    put_run = MessagePuts.put_run

    def counted(puts: MessagePuts, sends: object, *arguments: object) -> object:
        written = put_run(puts, sends, *arguments)  # type: ignore[arg-type]
        runs.append(getattr(sends, "count", 0))
        return written

    monkeypatch.setattr(MessagePuts, "put_run", counted)
    async with classic_world(tmp_path, clients) as world:
        async with world.client(MASTER) as client:
            rights = [entry("Allow", f"Topic:{name}", "Pub") for name in "TU"]
            await make_user(client, ALICE, *rights)
            await make_user(client, BOB, rights[0])
            for topic in "TUV":
                assert (await as_user(client, OPERATOR).send(b"first", topic=topic)).code == 0
        frames = bursts(chance, clients)
        got = await answers_to(world, b"".join(data for data, _ in frames), len(frames))
        wanted = {
            opaque: 0 if taken else int(ResponseCode.NO_PERMISSION)
            for opaque, (_, taken) in enumerate(frames)
        }
        assert got == wanted
        assert sum(runs) > 10  # so there were some


async def test_who_is_disabled_sends_nothing_more_in_a_run_either(
    tmp_path: Path, autojump_clock: object
) -> None:
    async with classic_world(tmp_path, AUTHORIZED) as world:
        async with world.client(MASTER) as client:
            await make_user(client, ALICE, entry("Allow", "*", "Pub"))
        ext = SendMessageRequestHeaderV2("p", "T", "TBW102", 4, 0, 0, 1, 0, PROPERTIES)
        fields = text_fields(RemotingCommand(RequestCode.SEND_MESSAGE_V2, ext=ext))
        signed = with_acl_signature(*ALICE, fields, b"x")
        data = b"".join(
            encode_frame(RemotingCommand(RequestCode.SEND_MESSAGE_V2, n, ext=signed, body=b"x"))
            for n in range(8)
        )
        assert set((await answers_to(world, data, 8)).values()) == {0}
        async with world.client(MASTER) as client:
            await order(
                client, RequestCode.AUTH_UPDATE_USER, username="alice", userStatus="disable"
            )
        assert set((await answers_to(world, data, 8, ip="10.0.0.51")).values()) == {
            ResponseCode.NO_PERMISSION
        }
