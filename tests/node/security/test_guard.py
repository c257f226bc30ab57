import random
from pathlib import Path

import pytest

from node.handlers.pull_runs import PULL_RUN_CODES
from node.handlers.send_runs import SEND_RUN_CODES
from node.remoting.remoting_client import RemotingClient
from node.security.access import NEEDED, Action, Resource, Standing
from node.security.guard import Guard
from node.security.request import handler_table
from node.security.seals import CHALLENGES_MAX
from tandem.wire.frame_buffer import FrameBuffer
from tandem.wire.remoting_command import RemotingCommand, encode_frame
from tandem.wire.request_code import RequestCode
from tandem.wire.request_signature import ChallengeBody, signed
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import decode_json_body
from tandem.wire.secret_keys import Purpose, key_of
from tests.node.doubles import Broker, handlers_of
from tests.node.handlers.send_requests import HEADER, with_more
from tests.node.security.guarded_server import KEY, TARGET, call, open_server, registration
from tests.node.world import MASTER, cluster_config, fenced_cluster, open_world
from tests.support.secret import SECRET


async def challenge(client: RemotingClient) -> str:
    answer = await client.request(RequestCode.NODE_CHALLENGE)
    return decode_json_body(answer.body, ChallengeBody).challenge


async def give(
    client: RemotingClient, number: str, *, key: bytes = KEY, target: str = TARGET, spoil: str = ""
) -> str:
    """Send a registration signed with that number; return "" or why it was refused."""
    header, body = registration("10.0.0.2:10911", 2)
    fields = {
        "brokerName": "broker-a",
        "brokerAddr": header.broker_addr,
        "clusterName": header.cluster_name,
        "haServerAddr": "",
        "brokerId": "2",
    }
    code = RequestCode.REGISTER_BROKER
    own = signed(key, code, fields, body, challenge=number, target=target)
    if spoil == "body":
        body += b" "
    elif spoil:
        own[spoil] = "3"
    answer = await call(client, code, own, body)
    assert answer.code in (ResponseCode.SUCCESS, ResponseCode.NO_PERMISSION)
    return answer.remark or ""


async def test_a_number_is_good_for_one_signature_on_its_connection(
    tmp_path: Path, autojump_clock: object
) -> None:
    async with open_server(tmp_path) as server, server.client() as client:
        number = await challenge(client)
        assert await give(client, number) == ""
        assert "used up" in await give(client, number)
        number = await challenge(client)
        async with server.client() as other:
            assert "of another connection" in await give(other, number)
        assert "used up" in await give(client, "")
        # A peer cannot make us remember more and more of them.
        first, *others = [await challenge(client) for _ in range(CHALLENGES_MAX + 1)]
        assert len({first, *others}) == CHALLENGES_MAX + 1
        assert "used up" in await give(client, first)
        assert await give(client, others[0]) == ""


async def test_a_number_is_used_up_by_a_wrong_signature_too(
    tmp_path: Path, autojump_clock: object
) -> None:
    async with open_server(tmp_path) as server, server.client() as client:
        number = await challenge(client)
        assert "another secret" in await give(client, number, spoil="brokerId")
        assert "used up" in await give(client, number)


async def test_numbers_say_nothing_of_the_next_to_who_does_not_know_the_secret(
    tmp_path: Path, autojump_clock: object
) -> None:
    drawn = {f"{random.Random(seed).getrandbits(128):032x}" for seed in range(10)}
    async with open_server(tmp_path) as server, server.client() as client:
        assert await challenge(client) not in drawn


async def test_what_is_signed_cannot_be_changed_or_meant_for_another_node(
    tmp_path: Path, autojump_clock: object
) -> None:
    async with open_server(tmp_path) as server, server.client() as client:
        for spoil in ("brokerId", "clusterName", "tandemTarget", "tandemSignature", "more", "body"):
            words = await give(client, await challenge(client), spoil=spoil)
            assert "another secret" in words, spoil
            assert "secret_file" in words
        other = key_of(SECRET, Purpose.LINK)
        assert "another secret" in await give(client, await challenge(client), key=other)
        words = await give(client, await challenge(client), target="10.0.0.3:10911")
        assert "signed for '10.0.0.3:10911', and this is a1" in words
        assert server.names.routes.cluster_info().broker_addr_table == {}


async def test_messages_go_to_their_handlers_directly(tmp_path: Path) -> None:
    """Not even a question is asked: puts and pulls cost what they cost without a guard."""
    guard = Guard(fenced_cluster(tmp_path).node("a1"), random.Random(1))
    families = handlers_of(Broker()).families
    unguarded, guarded = handler_table(*families), guard.guarded(*families)
    for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE, RequestCode.HEART_BEAT):
        assert guarded[code] == unguarded[code]
    assert guarded[RequestCode.UPDATE_BROKER_CONFIG] != unguarded[RequestCode.UPDATE_BROKER_CONFIG]


async def test_runs_are_taken_only_of_what_everybody_may_send(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is asked who sent a run."""
    guard = Guard(fenced_cluster(tmp_path).node("a1"), random.Random(1))

    def take(connection: object, frames: object) -> bool:
        return False

    for codes in (SEND_RUN_CODES, PULL_RUN_CODES):
        assert guard.runs(take, codes) is take
        assert guard.runs(None, codes) is None
        # Of several connections, which nobody signs.
        assert guard.runs(take, codes, are_signed=False) is take
    assert guard.runs(take, [RequestCode.PULL_MESSAGE, RequestCode.REGISTER_BROKER]) is None
    monkeypatch.setitem(NEEDED, (Resource.MESSAGES, Action.WRITE), Standing.OPERATOR)
    assert guard.runs(take, SEND_RUN_CODES) is None
    assert guard.runs(take, PULL_RUN_CODES) is take


async def test_a_node_whose_sends_need_somebody_takes_none_past_its_guard(
    tmp_path: Path, autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests that come together are refused one by one, signed wrongly or not at all."""
    async with open_world(cluster_config(tmp_path, role="ASYNC_MASTER")) as world:
        await world.start("a0")
        async with world.client(MASTER) as client:
            # A first message is never taken in a run.
            assert (await client.send(b"first", queue_id=HEADER.queue_id)).code == 0
        await world.stop("a0")
        monkeypatch.setitem(NEEDED, (Resource.MESSAGES, Action.WRITE), Standing.OPERATOR)
        await world.start("a0")
        usual = encode_frame(RemotingCommand(RequestCode.SEND_MESSAGE_V2, 1, ext=HEADER, body=b"x"))
        signed_wrongly = with_more(usual, {"AccessKey": "mallory", "Signature": "wrong"})
        sends = [usual, usual, signed_wrongly, usual]
        codes: list[int] = []
        machine = world.network.machine("10.0.0.50")
        stream = await machine.connect(MASTER, 10911, source="10.0.0.50")
        await stream.send_all(b"".join(sends))
        frames = FrameBuffer()
        while len(codes) < len(sends):
            frames.receive_data(await stream.receive_some(65_536))
            while (answer := frames.next_command()) is not None:
                codes.append(answer.code)
        await stream.aclose()
        assert codes == [ResponseCode.NO_PERMISSION] * len(sends)
