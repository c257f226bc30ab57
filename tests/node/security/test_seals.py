"""Sealed requests at whole nodes: what was recorded is good nowhere else, and never again."""

import logging
import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec
import pytest
import trio

from node.security.guard import WRONG_SIGNATURES_MAX
from node.simulated.network import SimulatedStream
from store.machine.network import ConnectionLost
from store.messages.put_message import MessagePuts
from tandem.cluster_file.choices import ClientAccess
from tandem.wire import native
from tandem.wire.acl_signature import with_acl_signature
from tandem.wire.frame_seal import Signatures
from tandem.wire.remoting_command import ONEWAY_FLAG, RemotingCommand, encode_frame, text_fields
from tandem.wire.request_code import RequestCode
from tandem.wire.response_code import ResponseCode
from tests.fuzz import hostile
from tests.node.security.sealed import JSON, PACKED, ROCKETMQ, Sealed, open_sealed, send_header
from tests.node.security.users_world import (
    ALICE,
    AUTHENTICATED,
    AUTHORIZED,
    BOB,
    OPERATOR,
    STRANGER,
    as_user,
    classic_world,
    entry,
    fenced_world,
    grant,
    make_user,
    operators_master,
    order,
)
from tests.node.world import (
    MASTER,
    NAMES,
    SLAVE_1,
    World,
    bodies,
    cluster_config,
    fenced_cluster,
    open_world,
)

REFUSED = ResponseCode.NO_PERMISSION
SEND = RequestCode.SEND_MESSAGE_V2
HOSTILE_FRAMES: Final = int(os.environ.get("HOSTILE_FRAMES", "2000"))


@asynccontextmanager
async def alices_world(directory: Path, clients: ClientAccess = AUTHORIZED) -> AsyncIterator[World]:
    async with classic_world(directory, clients) as world:
        async with world.client(MASTER) as client:
            await make_user(client, ALICE, entry("Allow", "*", "All"))
            await make_user(client, BOB)
        yield world


@pytest.mark.parametrize("clients", [AUTHENTICATED, AUTHORIZED])
@pytest.mark.parametrize("encoding", [PACKED, JSON, ROCKETMQ])
@pytest.mark.parametrize("port", [10911, 9876])
async def test_who_seals_is_served_in_every_encoding_and_at_every_port(
    tmp_path: Path, autojump_clock: object, clients: ClientAccess, encoding: object, port: int
) -> None:
    async with alices_world(tmp_path, clients) as world:
        for keys in (ALICE, OPERATOR):
            async with open_sealed(world, keys, port=port) as sealed:
                for _ in range(3):
                    ext = {"topic": "T"}
                    code = RequestCode.GET_ROUTEINFO_BY_TOPIC
                    frame = sealed.frame(code, ext, b"x", encoding)  # type: ignore[arg-type]
                    answer = await sealed.give(frame)
                    assert answer.code == 0, answer.remark
        async with open_sealed(world, BOB) as sealed:
            answer = await sealed.send(b"x")
            assert (answer.code == REFUSED) is (clients is AUTHORIZED)
            assert "check signature" not in (answer.remark or "")


async def test_what_was_recorded_is_good_nowhere_else_and_never_again(
    tmp_path: Path, autojump_clock: object
) -> None:
    async with alices_world(tmp_path) as world:
        async with open_sealed(world, ALICE) as sealed:
            recorded = sealed.frame(SEND, send_header(), b"recorded")
            assert (await sealed.give(recorded)).code == 0
            answer = await sealed.give(recorded)
            assert answer.code == REFUSED
            assert answer.remark is not None
            assert "sent again, or out of order" in answer.remark
            # Nor who has signed in. What comes after it is served all the same.
            assert (await sealed.give(sealed.sign_in)).code == REFUSED
            assert (await sealed.send(b"next")).code == 0
            async with open_sealed(world, None) as other:
                for frame in (recorded, sealed.sign_in):
                    assert (await other.give(frame)).code == REFUSED
                await other.challenge()
                for frame in (sealed.sign_in, recorded):
                    assert (await other.give(frame)).code == REFUSED
            async with open_sealed(world, ALICE) as hers:
                assert (await hers.give(recorded)).code == REFUSED
        async with world.client(MASTER) as client:
            assert bodies(await as_user(client, ALICE).pull(1)) == [b"recorded", b"next"]


async def test_what_is_out_of_order_is_refused(tmp_path: Path, autojump_clock: object) -> None:
    async with alices_world(tmp_path) as world, open_sealed(world, ALICE) as sealed:
        first, second = (sealed.frame(SEND, send_header(), body) for body in (b"1", b"2"))
        assert (await sealed.give(second)).code == 0
        assert (await sealed.give(first)).code == REFUSED


async def test_nothing_of_a_request_may_be_changed(
    tmp_path: Path, autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("node.security.guard.WRONG_SIGNATURES_MAX", 1_000)
    async with alices_world(tmp_path) as world, open_sealed(world, ALICE) as sealed:

        async def is_refused(frame: bytes, spoilt: bytes) -> bool:
            assert len(frame) == len(spoilt)
            assert frame != spoilt
            answer = await sealed.give(spoilt)
            return answer.remark == "check signature failed."

        ext = {"username": "bob", "zz": "x"}
        frame = sealed.frame(RequestCode.AUTH_GET_USER, ext, encoding=JSON)
        # Another code, a boundary moved, another value, another opaque, one-way.
        assert await is_refused(frame, frame.replace(b'"code":3004', b'"code":3003'))
        moved = frame.replace(b'"username":"bob","zz":"x"', b'"username":"bobx","zz":""')
        assert await is_refused(frame, moved)
        assert await is_refused(frame, frame.replace(b'"bob"', b'"eve"'))
        opaque = sealed.opaque
        later = frame.replace(b'"opaque":%d' % opaque, b'"opaque":%d' % (opaque + 1))
        assert await is_refused(frame, later)
        frame = sealed.frame(SEND, send_header(), b"body")
        assert await is_refused(frame, frame.replace(b"body", b"bodx"))
        assert await is_refused(frame, frame[:-1] + bytes([frame[-1] ^ 1]))
        assert (await sealed.give(frame)).code == 0
        async with world.client(MASTER) as client:
            user = await as_user(client, OPERATOR).call(
                RequestCode.AUTH_GET_USER, {"username": "bob"}
            )
            assert user.code == 0


@pytest.mark.parametrize("target", ["10.0.0.2:10911", "10.0.0.1:10912", "", "x" * 256])
async def test_what_is_meant_for_another_node_is_refused(
    tmp_path: Path, autojump_clock: object, target: str
) -> None:
    """Somebody between them can pass all on to another node, and gains nothing."""
    async with alices_world(tmp_path) as world, open_sealed(world, None) as sealed:
        assert (await sealed.signed_in(ALICE, target)).code == REFUSED
        answer = await sealed.send(b"x")
        assert answer.code == REFUSED
        if 0 < len(target) < 256:
            assert f"signed for '{target}', and this is a0" in (answer.remark or "")


async def test_nobody_signs_in_without_a_number_a_seal_or_for_somebody_else(
    tmp_path: Path, autojump_clock: object
) -> None:
    async with alices_world(tmp_path) as world:
        async with open_sealed(world, None) as sealed:
            frame = sealed.frame(RequestCode.SIGN_IN, {"AccessKey": "alice", "target": "t"})
            assert (await sealed.give(frame)).code == REFUSED
            await sealed.challenge()
            plain = sealed.plain(RequestCode.SIGN_IN, {"AccessKey": "alice", "target": "t"})
            assert (await sealed.give(plain)).code == REFUSED
        async with open_sealed(world, ALICE) as sealed:
            ext = {"AccessKey": "bob", "target": f"{MASTER}:10911"}
            assert (await sealed.give(sealed.frame(RequestCode.SIGN_IN, ext))).code == REFUSED
            assert (await sealed.send(b"x")).code == 0


@pytest.mark.parametrize("keys", [STRANGER, ("alice", "a guess"), ("tandem-operator", "a guess")])
async def test_who_guesses_is_answered_alike_and_loses_the_connection(
    tmp_path: Path,
    autojump_clock: object,
    caplog: pytest.LogCaptureFixture,
    keys: tuple[str, str],
) -> None:
    caplog.set_level(logging.INFO)
    async with alices_world(tmp_path) as world, open_sealed(world, None) as sealed:
        answer = await sealed.signed_in(keys, f"{MASTER}:10911")
        assert (answer.code, answer.remark) == (REFUSED, "check signature failed.")
        for _ in range(WRONG_SIGNATURES_MAX):
            assert (await sealed.send(b"x")).remark == "check signature failed."
        with pytest.raises(ConnectionLost):
            await sealed.stream.send_all(sealed.frame(SEND, send_header(), b"x"))
            assert await sealed.answers(1) == []
            raise ConnectionLost("ended")
        async with open_sealed(world, ALICE) as hers:
            assert (await hers.send(b"x")).code == 0
    said = "\n".join(record.getMessage() for record in caplog.records)
    assert "is refused" in said
    for secret in (ALICE[1], keys[1], sealed.seal._key.hex()):
        assert secret not in said


async def test_a_one_way_request_is_sealed_like_others(
    tmp_path: Path, autojump_clock: object
) -> None:
    async with alices_world(tmp_path) as world, open_sealed(world, ALICE) as sealed:
        for body in (b"1", b"2"):
            sealed.opaque += 1
            command = RemotingCommand(
                SEND, sealed.opaque, ONEWAY_FLAG, ext=send_header(), body=body
            )
            frame = sealed.seal.sealed(encode_frame(command), sealed.opaque)
            await sealed.stream.send_all(frame + frame)
        assert (await sealed.send(b"3")).code == 0
        assert bodies(await sealed.pull()) == [b"x", b"1", b"2", b"3"]


async def test_where_nobody_is_asked_seals_are_not_looked_at_but_the_operators(
    tmp_path: Path, autojump_clock: object
) -> None:
    async with open_world(cluster_config(tmp_path, role="ASYNC_MASTER")) as world:
        await world.start("a0")
        async with open_sealed(world, STRANGER) as sealed:
            assert (await sealed.send(b"x")).code == 0
            config = sealed.frame(RequestCode.UPDATE_BROKER_CONFIG, None, b"fileReservedTime=48")
            assert (await sealed.give(config)).code == REFUSED
        async with open_sealed(world, OPERATOR) as sealed:
            config = sealed.frame(RequestCode.UPDATE_BROKER_CONFIG, None, b"fileReservedTime=48")
            assert (await sealed.give(config)).code == 0
            assert (await sealed.give(config)).code == REFUSED
        async with open_sealed(world, None) as sealed:
            answer = await sealed.signed_in((OPERATOR[0], "a guess"), f"{MASTER}:10911")
            assert answer.code == REFUSED


# -- settings ------------------------------------------------------------------------------------


@asynccontextmanager
async def proof_world(
    directory: Path, clients: ClientAccess, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[World]:
    """A node that takes signatures without TLS only if they are good once."""
    config = cluster_config(directory, role="ASYNC_MASTER", clients=clients)
    security = msgspec.structs.replace(config.security, signatures=Signatures.REPLAY_PROOF)
    async with open_world(msgspec.structs.replace(config, security=security)) as world:
        await world.start("a0")
        with monkeypatch.context() as patched:
            patched.setattr(SimulatedStream, "has_tls", True)
            async with world.client(MASTER) as client:
                await make_user(client, ALICE, entry("Allow", "*", "All"))
                assert (await as_user(client, OPERATOR).send(b"x")).code == 0
        yield world


@pytest.mark.parametrize("clients", list(ClientAccess))
async def test_replay_proof_takes_rocketmqs_signatures_with_tls_alone(
    tmp_path: Path, autojump_clock: object, monkeypatch: pytest.MonkeyPatch, clients: ClientAccess
) -> None:
    orders = RequestCode.UPDATE_BROKER_CONFIG, None, b"fileReservedTime=48"
    async with proof_world(tmp_path, clients, monkeypatch) as world:
        async with world.client(MASTER) as client:
            answer = await as_user(client, OPERATOR).call(*orders)
            assert answer.code == REFUSED
            assert "security.signatures: replay_proof" in (answer.remark or "")
            if clients is not ClientAccess.OPEN:
                answer = await as_user(client, ALICE).send(b"x")
                assert answer.code == REFUSED
                assert "security.signatures: replay_proof" in (answer.remark or "")
        async with open_sealed(world, ALICE) as sealed:
            assert (await sealed.send(b"x")).code == 0
        async with open_sealed(world, OPERATOR) as sealed:
            assert (await sealed.give(sealed.frame(*orders))).code == 0
        monkeypatch.setattr(SimulatedStream, "has_tls", True)
        async with world.client(MASTER) as client:
            assert (await as_user(client, ALICE).send(b"x")).code == 0
            assert (await as_user(client, OPERATOR).call(*orders)).code == 0
        async with open_sealed(world, ALICE) as sealed:
            assert (await sealed.send(b"x")).code == 0


@pytest.mark.skipif(native.loops is None, reason="no C compiler at installation")
async def test_replay_proof_takes_no_run_of_rocketmqs_signatures_in_clear(
    tmp_path: Path, autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with proof_world(tmp_path, AUTHORIZED, monkeypatch) as world:
        ext = text_fields(RemotingCommand(SEND, ext=send_header(properties=USUAL)))
        signed = with_acl_signature(*ALICE, ext, b"x")
        data = b"".join(
            encode_frame(RemotingCommand(SEND, n, ext=signed, body=b"x")) for n in range(9)
        )
        for is_taken in (True, False):  # her key is known then
            monkeypatch.setattr(SimulatedStream, "has_tls", is_taken)
            async with open_sealed(world, None) as other:
                await other.stream.send_all(data)
                codes = {answer.code for answer in await other.answers(9)}
            assert codes == ({0} if is_taken else {REFUSED})


# -- runs ----------------------------------------------------------------------------------------

USUAL = "UNIQ_KEY\x017F00000100002A9F\x02WAIT\x01false\x02KEYS\x01k\x02"


def burst(chance: random.Random, sealed: Sealed) -> list[tuple[bytes, bool]]:
    """Return requests of one connection, and whether each is to be taken."""
    found: list[tuple[bytes, bool]] = []
    while len(found) < 120:
        topic = chance.choice("TTTTTTTTTTTU")
        body = chance.randbytes(chance.choice([0, 1, 100, 1000]))
        encoding = chance.choice([PACKED] * 20 + [JSON] * 4 + [ROCKETMQ])
        header = send_header(topic, USUAL if chance.random() < 0.95 else "WAIT\x01false\x02")
        last, opaque = sealed.seal.last, sealed.opaque
        frame = sealed.frame(SEND, header, body, encoding)
        spoil = chance.choice([*[""] * 30, "seal", "body", "again", "old", "unsealed", "skipped"])
        if spoil == "body" and not body:
            spoil = ""
        if spoil in ("seal", "body", "unsealed"):
            sealed.seal.last, sealed.opaque = last, opaque
        if spoil == "seal":
            frame = frame[:-1] + bytes([frame[-1] ^ 1])
        elif spoil == "body":
            place = len(frame) - 33
            frame = frame[:place] + bytes([frame[place] ^ 1]) + frame[place + 1 :]
        elif spoil == "unsealed":
            frame = sealed.plain(SEND, header, body, encoding)
            sealed.opaque = opaque
        elif spoil == "old" and found:
            found.append((frame, topic == "T"))
            frame = chance.choice(found)[0]
        elif spoil == "skipped":
            continue
        found.append((frame, topic == "T" and spoil in ("", "again")))
        if spoil == "again":
            found.append((frame, False))
    return found


@pytest.mark.slow
@pytest.mark.skipif(native.loops is None, reason="no C compiler at installation")
@pytest.mark.parametrize("with_runs", [True, False])
@pytest.mark.parametrize("seed", range(12))
async def test_each_is_taken_or_refused_as_if_it_had_come_alone(
    tmp_path: Path,
    autojump_clock: object,
    monkeypatch: pytest.MonkeyPatch,
    *,
    seed: int,
    with_runs: bool,
) -> None:
    monkeypatch.setattr("node.security.guard.WRONG_SIGNATURES_MAX", 1_000)
    chance, runs = random.Random(seed), [0]
    put_run = MessagePuts.put_run

    def counted(puts: MessagePuts, sends: object, *arguments: object) -> object:
        if not with_runs:
            return None
        written = put_run(puts, sends, *arguments)  # type: ignore[arg-type]
        runs.append(getattr(sends, "count", 0))
        return written

    monkeypatch.setattr(MessagePuts, "put_run", counted)
    async with classic_world(tmp_path, AUTHORIZED) as world:
        async with world.client(MASTER) as client:
            await make_user(client, ALICE, entry("Allow", "Topic:T", "Pub"))
            assert (await as_user(client, OPERATOR).send(b"first", topic="U")).code == 0
        async with open_sealed(world, ALICE) as sealed:
            frames = burst(chance, sealed)
            await sealed.stream.send_all(b"".join(frame for frame, _ in frames))
            answers = await sealed.answers(len(frames))
    taken = [answer.code == 0 for answer in answers]
    assert taken == [is_good for _, is_good in frames]
    assert {answer.code for answer in answers} == {0, REFUSED}
    assert (sum(runs) > 10) is with_runs


# -- users that change ---------------------------------------------------------------------------


async def test_another_secret_or_an_end_is_one_at_once(
    tmp_path: Path, autojump_clock: object
) -> None:
    async with alices_world(tmp_path) as world, world.client(MASTER) as client:
        changes = [{"password": "a new secret"}, {"password": ALICE[1]}, {"userStatus": "disable"}]
        keys = ALICE
        for change in changes:
            async with open_sealed(world, keys) as sealed:
                old = sealed.frame(SEND, send_header(), b"x")
                assert (await sealed.give(old)).code == 0
                await order(client, RequestCode.AUTH_UPDATE_USER, username="alice", **change)
                with pytest.raises(ConnectionLost):
                    await sealed.send(b"y")
            async with open_sealed(world, None) as sealed:
                target = f"{MASTER}:10911"
                assert (await sealed.signed_in(keys, target)).remark == "check signature failed."
            keys = ("alice", change.get("password", ""))


async def test_a_right_that_is_taken_is_taken_from_who_seals_too(
    tmp_path: Path, autojump_clock: object
) -> None:
    async with alices_world(tmp_path) as world, open_sealed(world, ALICE) as sealed:
        assert (await sealed.send(b"x")).code == 0
        async with world.client(MASTER) as client:
            await grant(client, "alice", entry("Deny", "Topic:T", "Pub"))
        answer = await sealed.send(b"x")
        assert answer.code == REFUSED
        assert "no permission to access Topic:T" in (answer.remark or "")
        assert (await sealed.send(b"x", topic="U")).code == 0


@pytest.mark.slow
async def test_seals_go_on_at_the_next_master_and_old_ones_are_good_at_none(
    tmp_path: Path, autojump_clock: object
) -> None:
    async with fenced_world(tmp_path, AUTHORIZED) as world:
        await world.start(*NAMES)
        first = await operators_master(world)
        async with world.client(world.address(first)) as client:
            await make_user(client, ALICE, entry("Allow", "*", "All"))
        async with open_sealed(world, ALICE, world.address(first)) as sealed:
            recorded = sealed.frame(SEND, send_header(), b"1")
            assert (await sealed.give(recorded)).code == 0
            await trio.sleep(3)
            for name in NAMES:
                if name != first:
                    async with open_sealed(world, ALICE, world.address(name)) as other:
                        assert (await other.give(recorded)).code == REFUSED
        await world.kill(first)
        second = await operators_master(world, *(name for name in NAMES if name != first))
        async with open_sealed(world, ALICE, world.address(second)) as sealed:
            assert (await sealed.give(recorded)).code == REFUSED
            assert (await sealed.send(b"2")).code == 0
            await trio.sleep(1)
            assert bodies(await sealed.pull()) == [b"1", b"2"]


async def test_a_node_that_has_just_started_knows_who_has_signed_in_when_it_knows_the_users(
    tmp_path: Path, autojump_clock: object
) -> None:
    """Until then it says to try again, and not that the signature is wrong."""
    config = cluster_config(tmp_path, role="ASYNC_MASTER", clients=AUTHORIZED)
    async with open_world(config) as world:
        await world.start("a0", "a1")
        async with open_sealed(world, None, SLAVE_1) as sealed:
            answer = await sealed.signed_in(ALICE, f"{SLAVE_1}:10911")
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert (await sealed.pull()).code == ResponseCode.SERVICE_NOT_AVAILABLE
            async with world.client(MASTER) as client:
                await make_user(client, ALICE, entry("Allow", "*", "All"))
                await as_user(client, OPERATOR).send(b"x")
            await trio.sleep(15)
            assert bodies(await sealed.pull()) == [b"x"]


# -- hostile -------------------------------------------------------------------------------------


def spoilt(chance: random.Random, frame: bytes) -> bytes:
    """Return a frame that is broken somewhere, mostly where it can still be read."""
    kind = chance.random()
    if kind < 0.02:
        broken = hostile.broken(chance, frame)
        return b"" if frame in broken else broken
    first = 8 if kind < 0.1 else len(frame) - 131  # the body, and the seal
    changed = bytearray(frame)
    for _ in range(chance.choice([1, 1, 1, 2, 5])):
        changed[chance.randrange(first, len(frame))] ^= 1 << chance.randrange(8)
    return bytes(changed) if bytes(changed) != frame else b""


async def test_hostile_sealed_frames_break_nothing_and_are_never_taken(
    tmp_path: Path,
    autojump_clock: object,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """HOSTILE_FRAMES=100000 for more of them. What breaks the framing ends its own connection."""
    monkeypatch.setattr("node.security.guard.WRONG_SIGNATURES_MAX", 1_000_000)
    caplog.set_level(logging.ERROR)
    chance = random.Random(1)
    taken = refused = 0
    async with alices_world(tmp_path) as world:
        left = HOSTILE_FRAMES
        while left > 0:
            async with open_sealed(world, ALICE) as sealed:
                frames = [sealed.frame(SEND, send_header("H", USUAL), b"h" * 99) for _ in range(50)]
                good = sealed.frame(SEND, send_header("Good", USUAL), b"good")
                data = b"".join(spoilt(chance, frame) for frame in frames)
                left -= len(frames)
                with trio.move_on_after(0.5):
                    with suppress(ConnectionLost):
                        await sealed.stream.send_all(data + good)
                        while answers := await sealed.answers(1):
                            taken += answers[0].code == 0
                            refused += answers[0].code == REFUSED
        async with world.client(MASTER) as client:
            stored = await as_user(client, OPERATOR).pull(topic="H")
            assert stored.code == ResponseCode.TOPIC_NOT_EXIST
            stored = await as_user(client, OPERATOR).pull(topic="Good")
            assert set(bodies(stored)) == {b"good"}
    assert taken > 0
    assert refused > HOSTILE_FRAMES // 4
    bugs = [record.getMessage() for record in caplog.records if "a bug" in record.getMessage()]
    assert bugs == []


async def test_fenced_nodes_have_their_group_address_too(
    tmp_path: Path, autojump_clock: object
) -> None:
    """A client dials the address of the group's master: it is one of the node's own."""
    from node.security.seals import Seals  # noqa: PLC0415

    config = fenced_cluster(tmp_path)
    groups = {
        name: msgspec.structs.replace(group, master_address="10.0.0.100:10911")
        for name, group in config.groups.items()
    }
    node = msgspec.structs.replace(config, groups=groups).node("a1")
    own = Seals(node, random.Random(1))._own
    assert own == {"10.0.0.1:10911", "10.0.0.1:10909", "10.0.0.1:9876", "10.0.0.100:10911"}
