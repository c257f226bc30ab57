from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from node.errors import ConfigError
from node.run import run_node
from store.machine.machine import this_machine
from tandem.wire import native
from tests.node.world import MASTER, cluster_config, fenced_cluster, open_world


async def test_a_node_of_a_fenced_group_needs_a_coordinator(tmp_path: Path) -> None:
    config = fenced_cluster(tmp_path).node("a1")
    with pytest.raises(ConfigError) as caught:
        await run_node(config, this_machine(), stop=trio.Event())
    assert caught.value.setting == "coordinator"


async def test_a_node_runs_until_it_is_stopped_and_can_start_again(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(cluster_config(tmp_path, role="ASYNC_MASTER")) as world:
        for count in (1, 2):
            await world.start("a0")
            async with world.client(MASTER) as client:
                assert (await client.send(b"x")).code == 0
                answer = await client.pull()
                assert answer.code == 0
            await world.stop("a0")
            assert count


@pytest.mark.parametrize("why_not", [None, "TANDEM_NATIVE is off"])
async def test_a_node_says_at_its_start_that_it_does_without_c(
    tmp_path: Path,
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    why_not: str | None,
) -> None:
    monkeypatch.setattr(native, "why_not_native", why_not)
    async with open_world(cluster_config(tmp_path, role="ASYNC_MASTER")) as world:
        await world.start("a0")
    assert ("is slower for it: TANDEM_NATIVE is off" in caplog.text) is bool(why_not)
