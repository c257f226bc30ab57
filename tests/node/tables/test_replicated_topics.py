from node.simulated.disk import SimulatedDisk
from node.tables.deleted import Deleted
from node.tables.node_table import TableFiles
from node.tables.replicated_topics import TopicsChanged, TopicsPart, TopicsTable
from tandem.wire.request_headers import TopicConfig
from tests.node.doubles import NOW_MS

A, B = TopicConfig("A"), TopicConfig("B")


def test_a_master_writes_those_of_its_own_that_are_missing() -> None:
    part = TopicsPart({"A": A})
    assert part.missing([A, B]) == [TopicsChanged([B])]
    part.apply(TopicsChanged([B]))
    assert part.missing([A, B]) == []


def test_a_node_shows_its_own_changes_and_those_that_were_confirmed() -> None:
    disk = SimulatedDisk()
    table = TopicsTable(TableFiles(disk, "s", lambda: NOW_MS, is_copy=True))
    table.take(TopicsChanged([A]))
    table.show(TopicsPart({}), [TopicsChanged([B])])
    assert table.as_part().topics == {"A": A, "B": B}
    table.take(Deleted(["A"]))
    assert set(table.as_part().topics) == {"B"}
    table.show(TopicsPart({"A": A}), None)
    assert set(table.as_part().topics) == {"A"}
    assert disk.read("s/config/topics.json") is None, "a copy is written late"
    for _ in table.save_in_steps():
        pass
    again = TopicsTable(TableFiles(disk, "s", lambda: NOW_MS))
    assert again.as_part().topics == {"A": A}
