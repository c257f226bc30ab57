from typing import Any

import msgspec

from tandem.cli.features_view import features_of, features_section, headline
from tandem.views.group_view import DOWN
from tandem.wire.ha_status import FencedStatus
from tests.tandem.views.group_samples import HEALTHY, NO_ANSWER, master, records, status, view

NEW: dict[str, Any] = {"program": "2.0", "level_max": 2}


def test_what_keeps_a_group_at_its_level_is_named_and_what_to_do() -> None:
    seen = view({"a": master(**NEW), "b": status("b", **NEW), "c": status("c")})
    found = features_of(seen)
    assert (found.level, found.level_max) == (1, 1)
    assert [words.split()[0] for words in found.waits_for] == ["c"]
    assert "before feature levels" in found.waits_for[0]
    assert "tandem ha raise-features" not in "\n".join(headline(found))


def test_when_all_know_more_the_order_is_shown() -> None:
    seen = view({"a": master(**NEW), "b": status("b", **NEW), "c": status("c", **NEW)})
    found = features_of(seen)
    assert (found.level, found.level_max, found.waits_for) == (1, 2, [])
    assert "tandem ha raise-features g" in headline(found)[-1]


def test_a_group_at_its_highest_level_says_no_more() -> None:
    seen = view(
        {"a": master(**NEW), "b": status("b", **NEW), "c": status("c", **NEW)}, records(level=2)
    )
    found = features_of(seen)
    assert (found.level, found.level_max) == (2, 2)
    assert headline(found) == ["g is at feature level 2"]


def test_a_node_that_does_not_answer_is_waited_for() -> None:
    found = features_of(view({"a": master(**NEW), "b": status("b", **NEW), "c": NO_ANSWER}))
    assert found.level_max == 1
    assert [node.answers for node in found.nodes] == [True, True, False]
    assert "start it" in found.waits_for[0]


def test_nothing_is_known_of_a_group_that_is_down() -> None:
    silent: dict[str, FencedStatus | str] = dict.fromkeys("abc", NO_ANSWER)
    found = features_of(view(silent, "no coordinator"))
    assert found.level == -1
    assert "unknown" in headline(found)[0]
    assert len(found.waits_for) == 3


def test_the_table_has_a_row_for_each_member() -> None:
    found = features_of(view({**HEALTHY, "a": master(**NEW)}))
    section = features_section(found.nodes)
    cells = [[column.value(node) for column in section.columns] for node in section.records]
    assert cells == [
        ["a", "2.0", "1 to 2", True],
        ["b", "before feature levels", "1", True],
        ["c", "before feature levels", "1", True],
    ]
    down = msgspec.structs.replace(found.nodes[0], program="", level_max=-1, answers=False)
    assert [column.value(down) for column in section.columns] == ["a", "?", "?", False]
    assert DOWN == "down"
