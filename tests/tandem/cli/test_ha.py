import json
from pathlib import Path

import msgspec
import pytest
import typer
from trio.testing import MockClock

from tandem.cli.ha import _as_lines, _fenced_group
from tandem.cluster.spec import GroupSpec
from tandem.cluster_file.choices import GroupKind
from tandem.cluster_file.settings import GroupSettings
from tandem.cluster_file.store_settings import StoreSettings
from tandem.testing import RunningCluster
from tandem.text_table import bare
from tandem.views.classic_nodes import classic_nodes
from tandem.views.cluster_look import look
from tests.support.patience import wait_until
from tests.tandem.cli.conftest import Tandem
from tests.tandem.cluster.fakes import fake_spec
from tests.tandem.views.fake_group import Nodes, group_of

# Those that need a cluster share it.
pytestmark = pytest.mark.xdist_group("one cluster of the command line")

SPEC = fake_spec(Path("/nowhere"), "m", "s")

FENCED = msgspec.structs.replace(
    SPEC,
    groups={
        "g": GroupSpec.of(GroupSettings(GroupKind.FENCED), StoreSettings()),
        "old": GroupSpec.of(GroupSettings(), StoreSettings()),
    },
)


def test_the_only_fenced_group_need_not_be_named() -> None:
    assert _fenced_group(FENCED, "") == _fenced_group(FENCED, "g") == "g"


@pytest.mark.parametrize("name", ["old", "x"])
def test_orders_are_for_fenced_groups_only(name: str) -> None:
    with pytest.raises(typer.BadParameter):
        _fenced_group(FENCED, name)


def test_without_or_with_several_fenced_groups_one_has_to_be_named() -> None:
    with pytest.raises(typer.BadParameter):
        _fenced_group(SPEC, "")
    two = msgspec.structs.replace(FENCED, groups={**FENCED.groups, "h": FENCED.groups["g"]})
    with pytest.raises(typer.BadParameter, match="name a group; fenced groups are: g, h"):
        _fenced_group(two, "")


async def test_fenced_and_classic_groups_are_looked_at_together(autojump_clock: MockClock) -> None:
    nodes = Nodes()
    async with group_of(nodes) as group:
        seen = await look(classic_nodes(SPEC), group.admin, [group])
    assert [view.master for view in seen.groups] == ["a"]
    assert [row.state for row in seen.classic_nodes] == ["down", "down"]
    assert not seen.is_silent
    text = "\n".join(map(bare, _as_lines(seen)))
    assert "g: a is master, epoch 7, and takes messages" in text
    assert "SLAVE" in text


def test_watching_is_for_people(tandem: Tandem) -> None:
    result = tandem("ha", "status", "--watch", "--format", "json")
    assert result.exit_code == 2
    assert tandem("ha", "status", "--watch", "--check").exit_code == 2


@pytest.mark.fault
def test_an_order_to_a_classic_group_is_a_usage_error(tandem: Tandem) -> None:
    for order in (["promote", "broker-a-1"], ["resign", "broker-a"], ["recover-group", "broker-a"]):
        result = tandem("ha", *order)
        assert result.exit_code == 2
        assert "classic" in result.stderr


def slaves_have_everything(tandem: Tandem) -> bool:
    """Whether no slave is behind: a send waits for one of them, and one in sync may lag."""
    rows = json.loads(tandem("ha", "status", "--format", "json").stdout)
    return [row["lag_bytes"] for row in rows[1:]] == [0, 0]


@pytest.mark.fault
def test_the_table_shows_every_node(tandem: Tandem, cluster: RunningCluster) -> None:
    tandem("produce", "ha-topic", input="one\ntwo\n")
    cluster.wait_in_sync()
    wait_until(lambda: slaves_have_everything(tandem))
    result = tandem("ha", "status")
    assert result.exit_code == 0
    assert result.stdout.count("in sync") == 2
    rows = json.loads(tandem("ha", "status", "--format", "json").stdout)
    assert [row["state"] for row in rows] == ["master", "in sync", "in sync"]
    assert rows[1]["lag_bytes"] == 0


@pytest.mark.fault
def test_with_the_master_down_the_slaves_are_asked(tandem: Tandem, cluster: RunningCluster) -> None:
    tandem("produce", "ha-topic", input="one\n")
    cluster.wait_in_sync()
    wait_until(lambda: slaves_have_everything(tandem))
    cluster.kill("broker-a-0")
    try:
        rows = json.loads(tandem("ha", "status", "--format", "json").stdout)
        checked = tandem("ha", "status", "--check")
    finally:
        cluster.start("broker-a-0")
        cluster.wait_in_sync()
    assert [row["state"] for row in rows] == ["down", "alone", "alone"]
    assert rows[1]["log_end"] == rows[2]["log_end"] > 0
    assert checked.exit_code == 3
    assert checked.stdout.startswith("takes no messages\n")
    assert tandem("ha", "status", "--check").exit_code == 0
