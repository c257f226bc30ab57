from node.figures.families import FAMILIES, sample_names
from node.figures.figure import NO_LABELS, Figure
from node.figures.group_lag import GroupLags
from node.figures.stream import figures
from tests.node.doubles import Broker
from tests.node.handlers.inspected import join, put


async def test_all_figures_are_in_the_catalogue_and_each_is_there_once() -> None:
    broker = Broker()
    put(broker, 2)
    join(broker, "c", "g", "T")
    broker.stats.handed_out("g", "T", 0, 1, 1, 100)
    broker.tables.commit("g", "T", 0, 1)
    live = Figure("tandem_connections", NO_LABELS, 1)
    found = list(figures(broker.sources(lambda: [live]), GroupLags()))
    known = {sample for name, each in FAMILIES.items() for sample in sample_names(name, each)}
    assert {each.name for each in found} <= known
    assert len({(each.name, each.labels) for each in found}) == len(found)
    assert live in found
