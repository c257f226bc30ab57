"""The table of modes: what its records change, and what a slave makes of its master's answer."""

import pytest

from node.remoting.remoting_client import RequestFailedError
from node.simulated.disk import SimulatedDisk
from node.tables.deleted import Deleted
from node.tables.node_table import TableFiles
from node.tables.replicated_modes import ModesChanged, ModesPart, ModesTable
from node.tables.slave_synchronize import copy_modes
from tandem.wire.errors import MalformedFrameError
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.response_code import ResponseCode
from tandem.wire.stats_requests import SetMessageRequestModeRequestBody

BODY = (
    b'{"messageRequestModeMap":{"T":{"CG":'
    b'{"consumerGroup":"CG","mode":"POP","popShareQueueNum":1,"topic":"T"}}}}'
)


def pop(topic: str, group: str, mode: str = "POP") -> ModesChanged:
    set_mode = SetMessageRequestModeRequestBody(consumer_group=group, mode=mode, topic=topic)
    return ModesChanged({topic: {group: set_mode}})


def test_a_record_sets_what_it_names_and_a_deletion_takes_it_away() -> None:
    part = ModesPart()
    for record in (pop("T", "a"), pop("T", "b"), pop("U", "a"), pop("T", "a", "PULL")):
        part.apply(record)
    copy = part.copy()
    assert part.count == 3
    found = part.find("T", "a")
    assert found is not None
    assert found.mode == "PULL"
    part.apply(Deleted(topics=["U", "none"], groups=["a"]))
    assert [(topic, list(groups)) for topic, groups in part.modes.items()] == [("T", ["b"])]
    assert copy.count == 3


def test_nothing_is_kept_of_a_topic_without_modes() -> None:
    part = ModesPart()
    part.apply(pop("T", "a"))
    part.apply(Deleted(groups=["a"]))
    assert part.content() == {"messageRequestModeMap": {}}


def test_the_file_is_the_one_of_rocketmq() -> None:
    disk = SimulatedDisk()
    table = ModesTable(TableFiles(disk, "s", lambda: 1))
    table.take(pop("T", "CG"))
    assert disk.exists("s/config/messageRequestMode.json")
    assert ModesTable(TableFiles(disk, "s", lambda: 1)).part.modes == table.part.modes


async def test_a_slave_has_the_modes_of_its_master_and_writes_them_once() -> None:
    table = ModesTable(TableFiles(SimulatedDisk(), "s", lambda: 1))
    table.take(pop("Old", "CG"))

    async def ask(code: RequestCode) -> RemotingCommand:
        assert code == RequestCode.GET_ALL_MESSAGE_REQUEST_MODE
        return RemotingCommand(code=0, body=BODY)

    for _ in range(2):
        await copy_modes(ask, table)
        assert list(table.part.modes) == ["T"]
    assert table.revision == 2
    with pytest.raises(MalformedFrameError):
        table.replace_all(b"{")


@pytest.mark.parametrize("code", [3, 1])
async def test_a_master_without_modes_is_no_error(code: int) -> None:
    table = ModesTable(TableFiles(SimulatedDisk(), "s", lambda: 1))

    async def ask(_: RequestCode) -> RemotingCommand:
        raise RequestFailedError(RemotingCommand(code=code))

    if code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        await copy_modes(ask, table)
    else:
        with pytest.raises(RequestFailedError):
            await copy_modes(ask, table)
