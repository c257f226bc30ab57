import msgspec

from tandem.cli.classic_view import classic_section
from tandem.cli.formats import section_lines
from tandem.text_table import bare
from tandem.views.classic_nodes import replication
from tests.tandem.views.classic_samples import NODES, SLAVE, connection, master


def test_the_table_has_a_row_for_each_node() -> None:
    rows = replication(NODES, {"m": master(connection()), "s": SLAVE})
    lines = section_lines(classic_section(rows), None)
    assert [bare(line).split()[:2] for line in lines[1:]] == [["m", "MASTER"], ["s", "SLAVE"]]
    assert "reason" not in bare(lines[0])


def test_a_damaged_log_is_shown_with_the_remedy_whatever_else_is_said() -> None:
    damaged = "its log is damaged from 0 to 7 (flipped)"
    rows = replication(
        NODES,
        {
            "m": msgspec.structs.replace(master(connection()), damage=damaged),
            "s": msgspec.structs.replace(SLAVE, damage=damaged),
        },
    )
    assert [row.damage for row in rows] == [damaged, damaged]
    assert rows[1].state == "in sync"
    _, *lines = section_lines(classic_section(rows), None)
    assert all("tandem log repair DIR --from" in bare(line) for line in lines)
