"""A master of a fenced group, and raw connections that play followers."""

from itertools import pairwise

import pytest
import trio
from trio.testing import MockClock

from ha.fenced.protocol import Refused, Report, encode_report
from ha.fenced.replica_server import CONFIRM_SECONDS, HANDSHAKES_MAX
from store.machine.errors import ConnectionLost
from tests.ha.link_world import open_world
from tests.ha.raw_follower import RawFollower, dial
from tests.ha.world import BODIES, FILE_SIZE_BYTES, IPS, PORT


async def test_a_follower_is_served_from_where_it_attaches(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        start = world.fill("a", BODIES[:10], epoch=2)
        world.fill("a", BODIES[10:], epoch=5)
        async with world.master(epoch=6) as master:
            follower = await dial(world)
            follower.epoch = 6
            welcome = await follower.attach(0)
            assert [entry.epoch for entry in welcome.epochs] == [2, 5, 6]
            assert (welcome.log_start, welcome.log_end) == (0, len(master.log))
            copied, epochs = bytearray(), set()
            while len(copied) < len(master.log):
                header, body = await follower.receive_frame()
                end = header.offset + len(body)
                assert header.offset == len(copied)
                assert len(body) <= 4096
                assert header.offset // FILE_SIZE_BYTES == (end - 1) // FILE_SIZE_BYTES
                assert header.epoch == (2 if end <= start else 5)
                epochs.add((header.epoch, header.epoch_start))
                copied += body
                await follower.report(len(copied))
            assert copied == master.log
            assert epochs == {(2, 0), (5, start)}
            header, body = await follower.receive_frame()
            assert (header.epoch, header.epoch_start, body) == (6, len(copied), b"")
            await master.wait_acked("b")
            assert master.calls == [("connected", "b", "raw"), ("attached", "b", 0)]
            link = master.server.links["b"]
            assert (link.written, link.flushed, link.sent) == (len(copied), 0, len(copied))


async def test_the_newer_connection_of_a_node_replaces_the_older_one_and_only_it_counts(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world, world.master() as master:
        first = await dial(world)
        await first.attach()
        await first.receive_frame()
        end = master.put()
        await first.receive_frame()
        second = RawFollower(
            await world.network.machine_at(IPS["b"]).connect(IPS["a"], PORT, source=None)
        )
        await second.say_hello()
        with pytest.raises(ConnectionLost):
            while True:
                await first.report(end)
                await trio.sleep(0.001)
        await trio.sleep(0.1)
        assert master.acks == {}
        assert [call[0] for call in master.calls] == ["connected", "attached", "connected"]
        assert master.server.links["b"].peer == second.stream.local  # type: ignore[attr-defined]


async def test_a_stranger_is_refused_with_words_and_logged_once(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_world() as world, world.master() as master:
        for _ in range(3):
            machine = world.network.machine(IPS["b"])
            follower = RawFollower(await machine.connect(IPS["a"], PORT, source=None))
            refused = await follower.say_hello(secret="guess")
            assert isinstance(refused, Refused)
            assert "another secret" in refused.reason
            machine.kill()
            await trio.sleep(0.1)
        assert master.calls == []
        assert caplog.text.count("was refused") == 1


@pytest.mark.parametrize(
    "garbage",
    [
        b"\xff" * 40,
        bytes(40),
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 3,
        encode_report(Report(1, 2**62, 2**62)) * 3,
        b"\x00\x00\x00\x00" * 20,
    ],
)
async def test_garbage_ends_the_connection_and_changes_nothing(
    autojump_clock: MockClock, garbage: bytes
) -> None:
    async with open_world() as world, world.master() as master:
        master.put()
        stranger = await dial(world, "127.0.0.99")
        await stranger.receive_message()
        before = trio.current_time()
        with pytest.raises(ConnectionLost):
            for start in range(0, len(garbage), 7):
                await stranger.stream.send_all(garbage[start : start + 7])
            await stranger.receive_exactly(1)
        assert trio.current_time() - before < 1
        assert master.calls == []
        assert master.server.links == {}


async def test_who_says_nothing_is_hung_up_on(autojump_clock: MockClock) -> None:
    async with open_world() as world, world.master():
        stranger = await dial(world, "127.0.0.99")
        await stranger.receive_message()
        before = trio.current_time()
        with pytest.raises(ConnectionLost):
            await stranger.receive_exactly(1)
        assert trio.current_time() - before == pytest.approx(3, abs=0.1)


async def test_strangers_without_number_do_not_keep_a_follower_out_for_long(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world, world.master() as master:
        machine = world.network.machine("127.0.0.99")
        for _ in range(HANDSHAKES_MAX + 5):
            await machine.connect(IPS["a"], PORT, source=None)
            await trio.sleep(0.002)
        async with world.follower():
            await master.wait_acked("b")


@pytest.mark.parametrize(
    ("written", "flushed", "epoch"),
    [(10**6, 0, 1), (2**62, 2**62, 1), (-1, -1, 1), (0, 1, 1), (0, 0, 2), (0, 0, 0)],
)
async def test_a_report_that_cannot_be_true_ends_the_connection_and_does_not_count(
    autojump_clock: MockClock, written: int, flushed: int, epoch: int
) -> None:
    async with open_world() as world, world.master() as master:
        follower = await dial(world)
        await follower.attach()
        await follower.report(0)
        master.put()
        await trio.sleep(0.1)
        await follower.report(written, flushed, epoch=epoch)
        with pytest.raises(ConnectionLost):
            while True:
                await follower.receive_frame()
        assert master.acks.get("b", (0, 0)) == (0, 0)
        assert master.calls[-1][:2] == ("lost", "b")
        assert "reported" in str(master.calls[-1][2]) or "report" in str(master.calls[-1][2])


async def test_heartbeats_while_nothing_happens_and_an_end_to_silence(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world, world.master() as master:
        follower = await dial(world)
        await follower.attach()
        times = []
        for _ in range(5):
            _, body = await follower.receive_frame()
            assert body == b""
            times.append(trio.current_time())
            await follower.report(0)
        gaps = [later - earlier for earlier, later in pairwise(times)]
        assert gaps == pytest.approx([1.0] * 4, abs=0.05)
        with pytest.raises(ConnectionLost):
            while True:
                await follower.receive_frame()
        assert trio.current_time() - times[-1] == pytest.approx(3.0, abs=0.1)
        assert master.calls[-1] == ("lost", "b", "no report for 3 seconds")


async def test_idle_followers_learn_of_a_new_confirm_offset_within_20_ms_in_one_heartbeat(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world, world.master() as master:
        end = master.put()
        follower = await dial(world)
        await follower.attach()
        await follower.receive_frame()
        before = trio.current_time()
        for offset in range(end):
            master.confirm_offset = offset + 1
            master.server.confirm_changed()
        header, body = await follower.receive_frame()
        assert (header.confirm, body) == (end, b"")
        assert trio.current_time() - before < 0.02
        master.server.confirm_changed()  # nothing new: no heartbeat before its time
        await follower.receive_frame()
        assert trio.current_time() - before > 0.9


async def test_a_frame_on_its_way_takes_the_confirm_offset_along(autojump_clock: MockClock) -> None:
    async with open_world() as world, world.master() as master:
        follower = await dial(world)
        await follower.attach()
        await follower.receive_frame()
        end = master.put()
        await follower.receive_frame()
        master.confirm_offset = end
        master.server.confirm_changed()
        master.put()
        before = trio.current_time()
        header, body = await follower.receive_frame()
        assert body
        assert header.confirm == end
        assert trio.current_time() - before < CONFIRM_SECONDS


async def test_what_shall_be_flushed_is_told_at_once(autojump_clock: MockClock) -> None:
    async with open_world() as world, world.master() as master:
        follower = await dial(world)
        await follower.attach()
        await follower.receive_frame()
        end = master.put()
        await follower.receive_frame()
        master.flush_wanted = end
        before = trio.current_time()
        master.server.flush_wanted_changed()
        header, body = await follower.receive_frame()
        assert (header.flush_wanted, body) == (end, b"")
        assert trio.current_time() - before < 0.005


async def test_a_follower_that_reads_nothing_holds_nobody_up(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        world.fill("a", BODIES * 4, epoch=1)
        async with world.master() as master, world.follower("c"):
            follower = await dial(world)
            await follower.attach()
            await master.wait_acked("c")
            assert master.server.links["b"].sent > 0
            await trio.sleep(4)
            assert "b" not in master.server.links


async def test_a_master_that_stops_leaves_no_stream_and_no_port(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        async with world.master() as master:
            follower = await dial(world)
            await follower.attach()
            await follower.receive_frame()
        with pytest.raises(ConnectionLost):
            while True:
                await follower.receive_frame()
        assert master.calls[-1] == ("lost", "b", "this node serves no followers any more")
        await world.network.machine(IPS["a"]).listen(IPS["a"], PORT)
