"""When a shadow dials and when it gives up; the whole of it is in test_shadow.py."""

import logging

import msgspec
import pytest
import trio
from trio.testing import MockClock

from ha.errors import LogDivergedError, MasterBehindError, OffsetMismatchError
from node.shadow.errors import ShadowCause, ShadowError
from node.shadow.follower import MARGIN_SECONDS, ShadowFollower
from node.shadow.master_search import MasterSearch
from node.simulated.virtual_clock import WallClock
from store import MessageStore, StoreConfig
from store.machine.errors import StoreFullError
from tandem.wire.message import Host
from tests.node.shadow.fake_master import FILE_BYTES
from tests.node.shadow.world import CONFIG, TIMEOUT_SECONDS, World, a_log

ALONE = msgspec.structs.replace(CONFIG, name_servers=())


def a_store(world: World) -> MessageStore:
    config = StoreConfig(
        directory="/shadow",
        mapped_file_size_commit_log_bytes=FILE_BYTES,
        max_hash_slot_num=100,
        max_index_num=400,
    )
    return MessageStore.open(
        config,
        disk=world.disk,
        wall_clock_ms=WallClock().now_ms,
        store_host=Host("127.0.0.1", 0),
        is_slave=True,
    )


def a_follower(world: World, store: MessageStore, *, counts: bool = False) -> ShadowFollower:
    config = msgspec.structs.replace(ALONE, count_as_slave=counts)
    return ShadowFollower(config, store, world.machine, MasterSearch(config, world.machine, ""))


@pytest.mark.parametrize(
    ("held", "counts", "waits"), [(True, False, True), (False, False, False), (True, True, False)]
)
async def test_only_who_has_bytes_and_must_not_acknowledge_waits(
    autojump_clock: MockClock, *, held: bool, counts: bool, waits: bool
) -> None:
    world = World()
    with a_store(world) as store:
        if held:
            store.append_data(0, bytes(a_log(1).log))
        follower = a_follower(world, store, counts=counts)
        begin = trio.current_time()
        assert await follower.find_master() == CONFIG.master
        waited = trio.current_time() - begin
        assert waited == pytest.approx(TIMEOUT_SECONDS + MARGIN_SECONDS if waits else 0.0)


async def test_what_only_a_person_can_mend_ends_it(autojump_clock: MockClock) -> None:
    world = World()
    with a_store(world) as store:
        follower = a_follower(world, store)
        for error in (
            LogDivergedError(offset=7),
            MasterBehindError(log_end=9, master_end=7),
            OffsetMismatchError(offset=7, expected=9),
        ):
            with pytest.raises(ShadowError, match="move the shadow's directory away") as caught:
                follower.refuse(error)
            assert caught.value.cause is ShadowCause.OTHER_HISTORY


async def test_a_peer_that_says_nothing_is_not_followed(autojump_clock: MockClock) -> None:
    """Whatever listens there: a web server takes reports, too."""
    world = World()
    with a_store(world) as store:
        follower = a_follower(world, store)
        follower.client.connected(store.max_physical_offset, b"")
        assert not follower.is_following


async def test_a_full_disk_is_said_and_waited_out(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    with a_store(world) as store:
        a_follower(world, store).refuse(StoreFullError("no room", path="/shadow"))
    assert caplog.records[-1].levelno >= logging.WARNING
