from trio.testing import MockClock

from tandem.coordinator.interface import CoordinatorUnavailableError
from tandem.wire.request_code import RequestCode
from tests.tandem.views.fake_group import KEYS, Nodes, group_of
from tests.tandem.views.group_samples import MEMBERS


async def test_everybody_is_asked_and_silence_is_an_answer(autojump_clock: MockClock) -> None:
    nodes = Nodes()
    del nodes.brokers[MEMBERS[1].address]
    nodes.brokers[MEMBERS[2].address].handlers[RequestCode.FENCED_STATUS] = lambda _: None
    async with group_of(nodes) as group:
        view = await group.view()
        assert view.master == "a"
        assert "refuses" in view.nodes[1].trouble
        assert view.nodes[2].trouble == "no answer in 3 s"
        nodes.records.trouble = CoordinatorUnavailableError("it is gone")
        assert (await group.view()).coordinator_trouble == "it is gone"
        nodes.records.trouble = None
        nodes.records.values[KEYS.state] = (b"?", 9)
        assert "is not a GroupState" in (await group.view()).coordinator_trouble
        group.coordinator = "no such file"
        assert (await group.view()).coordinator_trouble == "no such file"
