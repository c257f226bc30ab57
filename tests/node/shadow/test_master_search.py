import msgspec
import pytest
from trio.testing import MockClock

from node.shadow.config import ShadowUser
from node.shadow.master_search import MasterSearch
from store.machine.errors import ConnectionLost
from tandem.wire.acl_signature import AclKey
from tandem.wire.message import Host
from tests.node.shadow.fake_master import CLIENT_PORT, HA_PORT, IP, SERVER_PORT
from tests.node.shadow.world import CONFIG, open_world

NOWHERE = Host("10.0.0.77", SERVER_PORT)


async def test_the_first_name_server_that_answers_is_believed(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        config = msgspec.structs.replace(CONFIG, name_servers=(NOWHERE, Host(IP, SERVER_PORT)))
        search = MasterSearch(config, world.machine, "")
        place = await search.find()
        assert (place.broker_name, place.client) == ("broker-a", Host(IP, CLIENT_PORT))
        assert await search.ha_address() == Host(IP, HA_PORT)
        held = await search.log_range()
        assert held is not None
        assert held.end == len(world.master.log)


async def test_what_was_given_is_kept_while_the_master_is_where_it_was(
    autojump_clock: MockClock,
) -> None:
    """The way there may be a tunnel."""
    async with open_world() as world:
        tunnel = Host("10.0.0.66", 1)
        search = MasterSearch(
            msgspec.structs.replace(CONFIG, master=tunnel), world.machine, "broker-a"
        )
        assert await search.ha_address() == tunnel


async def test_without_name_servers_nobody_is_asked(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        search = MasterSearch(msgspec.structs.replace(CONFIG, name_servers=()), world.machine, "")
        assert not search.is_possible
        assert await search.ha_address() == CONFIG.master
        assert await search.log_range() is None
        with pytest.raises(ConnectionLost):
            async with search.master():
                pass


async def test_nobody_there_and_nonsense_are_lost_connections(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        config = msgspec.structs.replace(CONFIG, name_servers=(NOWHERE,))
        with pytest.raises(ConnectionLost, match=r"no name server answers \(10\.0\.0\.77:9876: "):
            await MasterSearch(config, world.machine, "").find()
        # The HA port speaks, but not this language.
        config = msgspec.structs.replace(CONFIG, name_servers=(Host(IP, HA_PORT),))
        with pytest.raises(ConnectionLost):
            await MasterSearch(config, world.machine, "").find()


async def test_every_question_is_signed_if_there_is_a_user(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        user = ShadowUser("me", "some secret")
        search = MasterSearch(msgspec.structs.replace(CONFIG, user=user), world.machine, "")
        await search.find()
        await search.log_range()
        assert len(world.master.asked) == 3
        for command in world.master.asked:
            fields = command.ext_fields()
            assert fields["AccessKey"] == "me"
            assert AclKey("some secret").is_signed(fields, command.body)
