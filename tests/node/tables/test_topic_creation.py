"""The setting of the moment decides whether sends create topics."""

from pathlib import Path
from unittest.mock import patch

import msgspec
import pytest
from trio.testing import MockClock

from node.errors import RequestError
from node.tables.topic_creation import set_auto_creation
from tandem.cluster_file.cluster_config import ClusterConfig
from tandem.wire.response_code import ResponseCode
from tests.node.doubles import Broker
from tests.node.world import (
    MASTER,
    NAMES,
    World,
    cluster_config,
    fenced_cluster,
    open_world,
)
from tests.support.logged import logged


def perm(broker: Broker) -> int:
    config = broker.topics.get("TBW102")
    assert config is not None
    return config.perm


def test_the_default_topic_inherits_or_not() -> None:
    broker = Broker()
    set_auto_creation(broker.tables, enabled=True)
    assert perm(broker) == 7
    set_auto_creation(broker.tables, enabled=False)
    assert perm(broker) == 6
    with pytest.raises(RequestError) as caught:
        broker.topics.config_for_send("New", "TBW102", 4)
    assert caught.value.code == ResponseCode.TOPIC_NOT_EXIST
    set_auto_creation(broker.tables, enabled=True)
    assert perm(broker) == 7


def test_a_table_without_the_default_topic_stays_so() -> None:
    broker = Broker()
    broker.topics.delete("TBW102")
    set_auto_creation(broker.tables, enabled=False)
    assert broker.topics.get("TBW102") is None


def test_a_change_that_cannot_be_written_does_not_stop_the_master(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = Broker()
    with patch.object(broker.tables, "change_topics", side_effect=RequestError(1, "no room")):
        set_auto_creation(broker.tables, enabled=False)
    assert [line[-1] for line in logged(caplog, "node.tables.topic_creation")] == ["no room"]


def creating(config: ClusterConfig, *, enabled: bool) -> ClusterConfig:
    broker = msgspec.structs.replace(config.broker, auto_create_topic_enable=enabled)
    return msgspec.structs.replace(config, broker=broker)


async def send(world: World, address: str, topic: str) -> int:
    async with world.client(address) as client:
        return (await client.send(b"x", topic=topic)).code


async def test_a_classic_store_made_with_creation_obeys_the_setting(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    config = cluster_config(tmp_path, role="ASYNC_MASTER")
    async with open_world(config) as world:
        await world.start("a0")
        assert await send(world, MASTER, "First") == 0
        await world.stop("a0")
        world.config = creating(config, enabled=False)
        await world.start("a0")
        assert await send(world, MASTER, "Second") == 17
        await world.stop("a0")
        world.config = config
        await world.start("a0")
        assert await send(world, MASTER, "Third") == 0


async def test_a_fenced_group_obeys_the_setting(tmp_path: Path, autojump_clock: MockClock) -> None:
    config = fenced_cluster(tmp_path)
    async with open_world(config) as world:
        await world.start(*NAMES)
        assert await send(world, world.address(await world.master()), "First") == 0
        for name in NAMES:
            await world.stop(name)
        world.config = creating(config, enabled=False)
        await world.start(*NAMES)
        assert await send(world, world.address(await world.master()), "Second") == 17
