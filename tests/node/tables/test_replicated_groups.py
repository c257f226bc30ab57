import pytest

from node.simulated.disk import SimulatedDisk
from node.tables.deleted import Deleted
from node.tables.node_table import TableFiles
from node.tables.replicated_groups import GroupsChanged, GroupsPart, GroupsTable
from tandem.wire.subscription_group import SubscriptionGroupConfig
from tests.node.doubles import NOW_MS

G, H = SubscriptionGroupConfig("g"), SubscriptionGroupConfig("h")


@pytest.mark.parametrize("is_copy", [False, True])
def test_a_node_takes_its_own_changes_and_has_them_in_its_file(is_copy: bool) -> None:  # noqa: FBT001
    disk = SimulatedDisk()
    table = GroupsTable(TableFiles(disk, "s", lambda: NOW_MS, is_copy=is_copy))
    table.take(GroupsChanged([G, H], {"g": {"T": 1}, "h": {"T": 1}}))
    table.take(GroupsChanged([], {"h": {}}))
    assert table.as_part().content() == GroupsPart({"g": G, "h": H}, {"g": {"T": 1}}).content()
    table.take(Deleted(groups=["g"]))
    assert (disk.read("s/config/subscriptionGroup.json") is None) == is_copy
    for _ in table.save_in_steps():
        pass
    again = GroupsTable(TableFiles(disk, "s", lambda: NOW_MS))
    assert again.as_part().content() == GroupsPart({"h": H}, {}).content()


def test_what_is_confirmed_replaces_all_but_the_groups_of_the_system() -> None:
    table = GroupsTable(TableFiles(SimulatedDisk(), "s", lambda: NOW_MS, is_copy=True))
    of_the_system = set(table.table.configs.subscription_group_table)
    table.take(GroupsChanged([G]))
    table.show(GroupsPart({"h": H}), [GroupsChanged([H])])
    assert set(table.table.configs.subscription_group_table) == {*of_the_system, "h"}
