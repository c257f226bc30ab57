"""Followers of a fenced group: beside a master of ours, and beside bytes that play one."""

import random

import pytest
import trio
from trio.testing import MockClock

from ha.errors import MasterDeposedError
from ha.fenced.epoch_file import EpochEntry, EpochFile
from ha.fenced.events import EpochAppended, FrameTaken, ReplicaReported
from ha.fenced.joining import Diverged, NeedsFullCopy, NeedsTruncation
from node.simulated.network import NetworkSettings
from store.machine.errors import ConnectionLost
from tests.ha.link_world import FollowerNode, LinkWorld, MasterNode, listed, open_world
from tests.ha.world import BODIES, FILE_SIZE_BYTES, IPS


async def test_a_follower_copies_the_log_and_goes_on(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        world.fill("a", BODIES, epoch=1)
        async with world.master() as master, world.follower() as b, world.follower("c") as c:
            await master.wait_acked("b", "c")
            for body in BODIES[:10]:
                master.put(body)
            await master.wait_acked("b", "c")
            for follower in (b, c):
                assert follower.log == master.log
                assert follower.epochs.entries == master.epochs.entries
                assert follower.follower.link_up
                assert follower.follower.trouble == ""
                assert trio.current_time() - follower.follower.traffic.last_read < 1


async def test_the_rest_of_a_follower_hears_that_its_log_has_grown_before_the_master_does(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        world.fill("a", BODIES[:3], epoch=1)
        async with world.master() as master, world.follower() as b:
            await master.wait_acked("b")
            heard: list[int] = []
            with b.store.grown.heard_by(lambda: heard.append(b.store.max_physical_offset)):
                for body in BODIES[:5]:
                    master.put(body)
                    await master.wait_acked("b")
                    assert heard[-1] == b.store.max_physical_offset
            assert len(heard) == 5


async def test_what_a_follower_does_is_told_in_its_order(autojump_clock: MockClock) -> None:
    """An epoch before its bytes, bytes before they are reported, nothing that was not taken."""
    async with open_world() as world:
        starts = [0, *(world.fill("a", BODIES[n : n + 10], epoch=n + 1) for n in (0, 10, 20))]
        async with world.master(epoch=40) as master, world.follower(epoch=40) as b:
            await master.wait_acked("b")
            await trio.sleep(0.02)
            end, epoch = 0, 0
            for event in b.events:
                match event:
                    case EpochAppended(number, start):
                        assert (number, start) in zip((1, 11, 21, 40), starts, strict=True)
                        assert start == end
                        epoch = number
                    case FrameTaken(number, offset, size, master_epoch):
                        assert (number, offset, master_epoch) == (epoch, end, 40)
                        end += size
                    case ReplicaReported(number, written, flushed):
                        assert number == 40
                        assert flushed <= written == end
            assert (end, epoch) == (len(master.log), 40)
            assert b.epochs.entries == listed(*zip((1, 11, 21, 40), starts, strict=True))
            assert EpochFile(world.disks["b"].crashed(), "/store").entries == b.epochs.entries


async def test_the_first_report_does_not_wait(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        async with world.master() as master, world.follower():
            master.put()
            await master.wait_acked("b")
        async with world.master() as master:
            before = trio.current_time()
            async with world.follower():
                await master.wait_acked("b")
                assert trio.current_time() - before < 0.05


async def test_an_empty_follower_begins_where_the_masters_log_does(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        world.fill("a", BODIES, epoch=1)
        world.disks["a"].remove("/store/commitlog/00000000000000000000")
        async with world.master() as master:
            assert master.store.min_physical_offset == FILE_SIZE_BYTES
            async with world.follower() as b:
                await master.wait_acked("b")
                assert b.store.min_physical_offset == FILE_SIZE_BYTES
                assert b.log == master.log
                assert b.epochs.entries == master.epochs.entries
            async with world.follower() as b:
                master.put()
                await master.wait_acked("b")
                assert b.log == master.log


async def test_a_log_from_before_all_epochs_is_copied_too(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        start = world.fill("a", BODIES[:20], epoch=0)
        async with world.master() as master, world.follower() as b:
            master.put()
            await master.wait_acked("b")
            assert b.log == master.log
            assert b.epochs.entries == listed((1, start))


async def test_what_is_confirmed_rises_and_is_never_more_than_the_own_log_has(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_world() as world:
        end = world.fill("a", BODIES, epoch=1)
        async with world.master() as master, world.follower() as b:
            confirms, real = list[int](), b.store.confirm

            def confirm(offset: int) -> None:
                assert offset <= b.store.max_physical_offset
                confirms.append(offset)
                real(offset)

            monkeypatch.setattr(b.store, "confirm", confirm)
            master.confirm_offset = end
            await master.wait_acked("b")
            await trio.sleep(0.1)
            assert confirms == sorted(set(confirms))
            assert confirms[-1] == b.store.confirm_offset == end


async def test_a_flush_that_is_wanted_is_done_and_reported_at_once(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world, world.master() as master, world.follower():
        master.put()
        await master.wait_acked("b")
        for _ in range(5):
            before = trio.current_time()
            end = master.flush_wanted = master.put()
            master.server.flush_wanted_changed()
            while master.acks["b"] != (end, end):
                await trio.sleep(0.0005)
            assert trio.current_time() - before < 0.02


# Logs that part


async def parted(world: LinkWorld, *, confirm: int = 0) -> tuple[int, int]:
    """`a` and `b` have the same beginning; then `b` was master of epoch 2, and `a` of epoch 3."""
    cut = world.fill("a", BODIES[:10], epoch=1)
    world.copy_disk("a", "b")
    end = world.fill("b", BODIES[10:15], epoch=2)
    if confirm:
        with world.open_store("b", is_slave=True) as store:
            store.confirm(confirm)
    world.fill("a", BODIES[15:25], epoch=3)
    return cut, end


async def test_a_tail_that_the_master_has_not_ends_in_a_cut_and_nothing_was_touched(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        cut, end = await parted(world)
        async with world.master() as master, world.follower(epoch=3) as b:
            before = b.log
            outcome = await b.wait_ended()
            assert outcome == NeedsTruncation(
                cut=cut,
                end=end,
                entries=(EpochEntry(1, 0), EpochEntry(3, cut)),
                master="a",
                epoch=3,
            )
            assert b.log == before
            assert b.epochs.entries == listed((1, 0), (2, cut))
            assert b.events == []
            await trio.sleep(0.1)
            assert master.acks == {}


async def test_a_master_that_lacks_what_was_confirmed_hears_it_until_it_is_gone(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        cut, end = await parted(world, confirm=1 << 40)
        async with world.master() as master, world.follower(epoch=3) as b:
            before = b.log
            await trio.sleep(1)
            assert master.calls.count(("objected", "b", cut, end)) > 2
            assert master.acks == {}
            assert b.log == before
            assert f"part at {cut}" in b.follower.trouble
            assert not b.follower.link_up


async def test_a_tail_below_confirm_is_an_alarm_where_the_master_has_confirmed_something_else(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        cut, _ = await parted(world, confirm=1 << 40)
        async with world.master() as master, world.follower(epoch=3) as b:
            master.confirm_offset = cut + 1
            outcome = await b.wait_ended()
            assert isinstance(outcome, Diverged)
            assert f"part at {cut}" in outcome.reason


async def test_other_bytes_under_the_same_epochs_are_an_alarm_on_both_sides(
    autojump_clock: MockClock,
) -> None:
    """What is left when a coordinator was set back: numbers and starts agree, bytes do not."""
    async with open_world() as world:
        world.fill("a", BODIES[:10], epoch=1)
        world.fill("b", [bytes(reversed(body)) for body in BODIES[:10]], epoch=1)
        async with world.master() as master, world.follower() as b:
            outcome = await b.wait_ended()
            assert isinstance(outcome, Diverged)
            assert "other bytes between" in outcome.reason
            assert master.acks == {}


async def test_a_cut_where_no_record_begins_is_an_alarm(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        cut, _ = await parted(world)
        world.epochs("b").replace(listed((1, 0), (2, cut - 1)))
        world.epochs("a").replace(listed((1, 0), (3, cut - 1)))
        async with world.master(), world.follower(epoch=3) as b:
            outcome = await b.wait_ended()
            assert isinstance(outcome, Diverged)
            assert f"part at {cut - 1}, where no sound record" in outcome.reason


async def test_a_cut_at_the_record_that_ends_a_file_is_a_cut(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        cut = world.fill("a", BODIES[:14], epoch=1)
        world.copy_disk("a", "b")
        filler = bytes(8000)
        world.fill("b", [filler, filler], epoch=2)
        world.fill("a", [b"x"], epoch=3)
        async with world.master(), world.follower(epoch=3) as b:
            with b.store.read_log(cut, 8) as head:
                assert head[4:].hex() == "cbd43194"
            outcome = await b.wait_ended()
            assert isinstance(outcome, NeedsTruncation)
            assert outcome.cut == cut


async def test_a_log_without_epochs_has_to_be_copied_whole(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        world.fill("b", BODIES[:5], epoch=0)
        async with world.master(), world.follower() as b:
            assert isinstance(await b.wait_ended(), NeedsFullCopy)


# Links that break


@pytest.mark.parametrize("moment", range(0, 60, 4))
async def test_a_follower_stopped_at_any_moment_goes_on_where_it_was(
    autojump_clock: MockClock, moment: int
) -> None:
    async with open_world() as world:
        for number in range(6):
            world.fill("a", BODIES[number * 10 : number * 10 + 10], epoch=number + 1)
        async with world.master() as master:
            async with world.follower(epoch=6) as b:
                await trio.sleep(moment * 0.0005)
                assert master.log.startswith(b.log)
                assert set(b.epochs.entries) <= set(master.epochs.entries)
            async with world.follower(epoch=6) as b:
                await master.wait_acked("b")
                assert b.log == master.log
                assert b.epochs.entries == master.epochs.entries


@pytest.mark.parametrize("seed", range(12))
async def test_a_follower_that_lost_power_gets_again_what_it_lost(
    autojump_clock: MockClock, seed: int
) -> None:
    """Its epoch file is on disk in any case, of its log what was flushed and perhaps some more."""
    chance = random.Random(seed)
    async with open_world() as world:
        for number in range(6):
            world.fill("a", BODIES[number * 10 : number * 10 + 10], epoch=number + 1)
        async with world.master() as master:
            async with world.follower(epoch=6):
                await trio.sleep(chance.uniform(0, 0.05))
                disk = world.disks["b"].powered_off(chance)
            world.disks["b"] = disk
            with world.open_store("b", is_slave=True) as store:
                end = store.max_physical_offset
            world.epochs("b").trim_to_log(end)
            async with world.follower(epoch=6) as b:
                await master.wait_acked("b")
                await trio.sleep(0.05)
                assert b.outcome is None
                assert b.log == master.log
                assert b.epochs.entries == master.epochs.entries


async def test_a_link_that_is_cut_again_and_again_copies_everything_all_the_same(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        world.fill("a", BODIES * 3, epoch=1)
        async with world.master() as master, world.follower(reconnect_interval_ms=5) as b:
            for _ in range(20):
                await trio.sleep(0.004)
                world.network.cut(IPS["a"], IPS["b"])
                assert master.log.startswith(b.log)
            await master.wait_acked("b")
            assert b.log == master.log
            names = [call[0] for call in master.calls]
            assert names.count("lost") == names.count("connected") - 1


async def test_a_frozen_master_is_left_and_dialled_again(autojump_clock: MockClock) -> None:
    async with open_world() as world, world.master() as master, world.follower() as b:
        await master.wait_acked("b")
        world.network.stall(IPS["a"], IPS["b"])
        await trio.sleep(3.5)
        assert not b.follower.link_up
        assert "nothing for 3 seconds" in b.follower.trouble
        world.network.heal(IPS["a"], IPS["b"])
        master.put()
        await master.wait_acked("b")
        assert b.follower.trouble == ""


async def test_an_idle_link_stays_up_with_one_word_a_second_each_way(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world, world.master() as master, world.follower() as b:
        await master.wait_acked("b")
        b.events.clear()
        await trio.sleep(20)
        assert [type(event) for event in b.events] == [ReplicaReported] * len(b.events)
        assert 19 <= len(b.events) <= 21
        assert [call[0] for call in master.calls] == ["connected", "attached"]
        assert trio.current_time() - b.follower.traffic.last_read < 1.1


async def test_a_master_that_takes_no_reports_is_left(autojump_clock: MockClock) -> None:
    """Only that direction is stalled: the master goes on sending, and gives the follower up."""
    async with open_world() as world, world.master() as master, world.follower() as b:
        await master.wait_acked("b")
        world.network.stall(IPS["b"], IPS["a"])
        await trio.sleep(3.5)
        assert "b" not in master.server.links
        assert not b.follower.link_up
        world.network.heal(IPS["b"], IPS["a"])
        master.put()
        await master.wait_acked("b")


async def test_a_slow_link_loses_nothing(autojump_clock: MockClock) -> None:
    async with open_world(NetworkSettings(split_chance=0.9, short_send_chance=0.5)) as world:
        world.fill("a", BODIES, epoch=1)
        world.network.slow(IPS["a"], IPS["b"], delay_seconds=0.02, bytes_per_second=1e6)
        async with world.master() as master, world.follower() as b:
            await master.wait_acked("b")
            assert b.log == master.log


async def test_trouble_is_logged_once(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_world() as world, world.master(), world.follower(secret="guess") as b:
        await trio.sleep(2)
        assert "a was started with another secret" in b.follower.trouble
        assert caplog.text.count("this node does not follow a:") == 1
        assert caplog.text.count("'b' and was refused") == 1


# Whom not to follow


async def test_nothing_is_taken_from_a_master_below_the_promise(autojump_clock: MockClock) -> None:
    async with open_world() as world, world.master() as master, world.follower() as b:
        master.put()
        await master.wait_acked("b")
        before, reported = b.log, master.acks["b"]
        b.promised = 2
        master.put()
        await trio.sleep(0.5)
        assert b.log == before
        assert master.acks.get("b", reported) == reported
        assert "promised epoch 2" in b.follower.trouble


async def test_no_list_of_epochs_is_taken_from_a_master_below_the_promise(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world, world.master() as master, world.follower() as b:
        await master.wait_acked("b")
        before = b.epochs.entries
        b.promised = 2
        with pytest.raises(MasterDeposedError):
            b.follower._adopt(listed((1, 0), (7, 5)))
        assert b.epochs.entries == before


async def test_a_master_below_the_promise_gets_no_report_either(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world, world.master() as master, world.follower() as b:
        await master.wait_acked("b")
        b.events.clear()
        b.promised = 2
        await trio.sleep(3)
        assert b.events == []
        assert "b" not in master.server.links


async def test_a_master_of_an_older_epoch_is_not_followed(autojump_clock: MockClock) -> None:
    async with open_world() as world, world.master() as master, world.follower(epoch=2) as b:
        b.promised = 1
        master.put()
        await trio.sleep(0.5)
        assert b.log == b""
        assert "serves epoch 1; epoch 2" in b.follower.trouble


async def test_a_full_disk_ends_the_session_and_acknowledges_nothing_more(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world, world.master() as master:
        disk = world.disks["b"]
        async with world.follower() as b:
            master.put()
            await master.wait_acked("b")
            disk.capacity_bytes = disk.used_bytes
            for body in BODIES * 2:
                master.put(body)
            await trio.sleep(1)
            assert "no room" in b.follower.trouble
            assert master.log.startswith(b.log)
            assert master.acks.get("b", (0, 0))[0] <= len(b.log) < len(master.log)
            disk.capacity_bytes = 1 << 40
            await master.wait_acked("b")
            assert b.log == master.log


async def test_a_disk_that_failed_is_not_reported_from(autojump_clock: MockClock) -> None:
    async with open_world() as world, world.master() as master, world.follower() as b:
        master.put()
        await master.wait_acked("b")
        world.disks["b"].sync_fails = True
        before = master.acks["b"]
        master.flush_wanted = master.put()
        master.server.flush_wanted_changed()
        await trio.sleep(2)
        assert master.acks.get("b", before)[1] <= before[1]
        assert not b.follower.link_up
        assert b.follower.trouble


# Bytes that were changed on their way


class Flipper:
    """Changes one bit of what the master sends to `b`, once."""

    def __init__(self, master: MasterNode, position: int) -> None:
        self._left = position
        self._machine = master.machine
        self.flipped = False
        self._watch()

    def _watch(self) -> None:
        (stream,) = self._machine.streams_to(IPS["b"])
        send = stream._send

        def flip(data: bytes) -> None:
            if not self.flipped and self._left < len(data):
                self.flipped = True
                changed = bytearray(data)
                changed[self._left] ^= 0x04
                data = bytes(changed)
            self._left -= len(data)
            send(data)

        stream._send = flip  # type: ignore[method-assign]


async def wait_dry(master: MasterNode, b: FollowerNode) -> None:
    await master.wait_acked("b")
    await trio.sleep(0.05)
    assert b.log == master.log


@pytest.mark.slow
@pytest.mark.parametrize("position", [*range(56), *range(56, 1200, 89)])
async def test_a_bit_that_flips_on_the_wire_ends_the_session_and_nothing_wrong_is_appended(
    autojump_clock: MockClock, position: int
) -> None:
    async with open_world() as world, world.master() as master, world.follower() as b:
        master.put(b"first")
        await wait_dry(master, b)
        flipper = Flipper(master, position)
        for number in range(10):
            master.put(bytes([number]) * 150)
        await trio.sleep(0.1)
        assert flipper.flipped
        assert master.log.startswith(b.log)
        await master.wait_acked("b")
        assert b.log == master.log
        assert ("lost", "b") in [call[:2] for call in master.calls]


async def test_a_stopped_follower_leaves_no_stream(autojump_clock: MockClock) -> None:
    async with open_world() as world, world.master() as master:
        async with world.follower() as b:
            await master.wait_acked("b")
        await trio.sleep(0.1)
        assert not b.machine.streams_to(IPS["a"])
        assert "b" not in master.server.links
        with pytest.raises(ConnectionLost):
            await b.machine.connect(IPS["a"], 1, source=None)
