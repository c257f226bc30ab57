"""Nodes ask each other about their logs; nobody else is answered, and nobody else is believed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
import trio

from ha.errors import NoPart, PeerSilentError
from ha.fenced.served_log import ServedLog
from node.broker.peer_logs import ClientPeerLogs
from tandem.wire.peer_log import LogRangeHeader
from tandem.wire.request_code import RequestCode
from tandem.wire.response_code import ResponseCode
from tests.node.world import NAMES, World, fenced_cluster, open_world

MIB = 1 << 20


@asynccontextmanager
async def open_group(directory: Path) -> AsyncIterator[tuple[World, str, str, ClientPeerLogs]]:
    """A group with a closed file; its master, a follower, and what the latter asks with."""
    async with open_world(fenced_cluster(directory)) as world:
        await world.start(*NAMES)
        master = await world.master()
        async with world.client(world.address(master)) as client:
            for _ in range(13):
                assert (await client.send(bytes(90_000))).code == 0
        asker = next(name for name in NAMES if name != master)
        await trio.sleep(5)
        config = world.config.with_secret().node(asker)
        yield world, master, asker, ClientPeerLogs(config, world._machines[asker])


@pytest.mark.slow
async def test_what_a_peer_has_of_a_log(
    tmp_path: Path, autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    histories: list[str] = []
    data = ServedLog.data

    def noted(served: ServedLog, start: int, end: int, history: str = "") -> bytes:
        histories.append(history)
        return data(served, start, end, history)

    monkeypatch.setattr(ServedLog, "data", noted)
    async with open_group(tmp_path) as (world, master, asker, peers):
        async with peers.session(master) as session:
            part = await session.part(0, MIB)
            assert part.node == master
            assert part.fingerprint is not None
            assert len(part.fingerprint.crcs) == 16 * 4
            assert part.epochs
            assert part.confirm == (await world.status(master)).confirm
            assert (await session.data(4, 8)) == b"\xda\xa3\x20\xa7"
            with pytest.raises(PeerSilentError) as caught:
                await session.data(part.log_end, part.log_end + 1, "some history")
            assert caught.value.cause is NoPart.REFUSED
            assert histories == ["", "some history"]
            await session.doubt(0, 1000)
            with pytest.raises(PeerSilentError) as caught:
                await session.part(0, MIB + 1)
            assert caught.value.cause is NoPart.REFUSED
            with pytest.raises(PeerSilentError) as caught:
                await session.data(0, MIB)
            assert caught.value.cause is NoPart.REFUSED
            assert len(await session.data(0, 10)) == 10  # the connection is as good as before
        assert (await world.status(master)).damage == ""
        own = world.address(asker)
        async with world.client(own) as client:
            answer = await client.call_signed(
                RequestCode.LOG_BYTES, LogRangeHeader(0, 1000), target=f"{own}:10911"
            )
            async with peers.session(master) as session:
                assert answer.body == await session.data(0, 1000)


@pytest.mark.slow
async def test_strangers_get_nothing(tmp_path: Path, autojump_clock: object) -> None:
    async with (
        open_group(tmp_path) as (world, master, _, _),
        world.client(world.address(master)) as client,
    ):
        for code in (
            RequestCode.LOG_FINGERPRINTS,
            RequestCode.LOG_BYTES,
            RequestCode.LOG_DAMAGED,
        ):
            answer = await client.call(code, LogRangeHeader(0, 100))
            assert answer.code == ResponseCode.NO_PERMISSION
            assert answer.body == b""


@pytest.mark.slow
async def test_who_does_not_know_the_secret_is_not_believed(
    tmp_path: Path, autojump_clock: object
) -> None:
    async with open_group(tmp_path) as (world, master, asker, _):
        config = world.config.with_secret()
        other = msgspec.structs.replace(config, secret="f" * 64).node(asker)
        async with ClientPeerLogs(other, world._machines[asker]).session(master) as session:
            with pytest.raises(PeerSilentError) as caught:
                await session.part(0, MIB)
            assert caught.value.cause is NoPart.REFUSED


@pytest.mark.slow
async def test_an_answer_without_signature_is_not_taken(
    tmp_path: Path, autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_group(tmp_path) as (_, master, _, peers):
        monkeypatch.setattr("node.handlers.peer_log.answer_signature", lambda *_: "0" * 64)
        async with peers.session(master) as session:
            with pytest.raises(PeerSilentError) as caught:
                await session.data(0, 100)
            assert caught.value.cause is NoPart.UNPROVEN
            with pytest.raises(PeerSilentError) as caught:
                await session.data(0, 100)
            assert caught.value.cause is NoPart.UNPROVEN


@pytest.mark.slow
async def test_a_peer_that_is_gone_is_silent(tmp_path: Path, autojump_clock: object) -> None:
    async with open_group(tmp_path) as (world, master, _, peers):
        await world.kill(master)
        async with peers.session(master) as session:
            with pytest.raises(PeerSilentError) as caught:
                await session.part(0, MIB)
            assert caught.value.cause is NoPart.SILENT


@pytest.mark.slow
async def test_what_another_node_gives_or_less_is_not_taken(
    tmp_path: Path, autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_group(tmp_path) as (world, master, asker, _):
        (other,) = (name for name in NAMES if name not in (master, asker))
        places = {node.name: node for node in world.config.nodes}
        places[other] = msgspec.structs.replace(places[master], name=other)
        nodes = tuple(places.values())
        config = msgspec.structs.replace(world.config, nodes=nodes).with_secret().node(asker)
        peers = ClientPeerLogs(config, world._machines[asker])
        async with peers.session(other) as session:
            with pytest.raises(PeerSilentError) as caught:
                await session.part(0, MIB)
            assert caught.value.cause is NoPart.OTHER_PART
            monkeypatch.setattr(ServedLog, "data", lambda *_: b"short")
            with pytest.raises(PeerSilentError) as caught:
                await session.data(0, 100)
            assert caught.value.cause is NoPart.OTHER_PART
