import pytest

from tandem.cli.formats import Section, section_lines
from tandem.cli.group_table import facts, group_lines, headline, human_duration, node_columns
from tandem.text_table import bare
from tandem.views.group_view import GroupView
from tandem.wire.ha_status import HealedPart
from tests.tandem.views.group_samples import HEALTHY, NO_ANSWER, master, records, status, view

NOW_MS = 1_700_000_000_000 + 180_000


def text_of(seen: GroupView) -> str:
    return "\n".join(map(bare, group_lines(seen, NOW_MS, None)))


def test_a_healthy_group_is_one_sentence() -> None:
    assert headline(view()) == "a is master, epoch 7, and takes messages"


def test_a_group_that_takes_nothing_says_so_first() -> None:
    refusing = view({**HEALTHY, "a": master(refusal="too few replicas")})
    assert headline(refusing) == "a is master, epoch 7, but takes no messages"
    seen = view({"a": NO_ANSWER, "b": status("b"), "c": status("c")}, records(leader=None))
    assert headline(seen) == "NO MASTER, epoch 7: takes no messages"
    nothing = view(dict.fromkeys("abc", NO_ANSWER), "refused")
    assert headline(nothing) == "NO MASTER, epoch unknown: takes no messages"


def test_the_last_switch_says_when_why_and_who_was_before() -> None:
    in_sync, switch = facts(view(), NOW_MS)
    assert in_sync == (
        "in sync: a, b (2 of 3 nodes; messages are taken from 2 on); an acknowledged message is in"
        " the page cache of each"
    )
    assert "3 min ago: the lease of c ended (before: c)" in switch


def test_that_the_coordinator_is_silent_is_told_and_so_is_an_operators_wish() -> None:
    assert any("does not say: refused" in line for line in facts(view(said="refused"), NOW_MS))
    wanted = facts(view(said=records(preferred="b")), NOW_MS)
    assert "an operator wants b to be master" in wanted


def test_without_any_answer_nothing_is_made_up() -> None:
    seen = view(dict.fromkeys("abc", NO_ANSWER), "refused")
    (in_sync, coordinator) = facts(seen, NOW_MS)
    assert in_sync.startswith("in sync: nobody (0 of 3 nodes; messages are taken from ? on)")
    assert in_sync.endswith("on each")
    assert "refused" in coordinator
    _, row, *_ = section_lines(Section(seen.nodes, node_columns(seen.nodes)), None)
    assert bare(row).split(maxsplit=9) == [
        "a", "down", "no", "?", "?", "?", "?", "?", "?", NO_ANSWER,
    ]  # fmt: skip


def test_the_health_of_a_log_is_a_line_of_its_own() -> None:
    healed = [HealedPart(0, 9, "a", "a flip", 1), HealedPart(70, 90, "c", "zeros", 2)]
    ill = status(
        "b",
        damage="its log is damaged from 7 to 8 (a flip)",
        not_healed=["no other node answers"],
        undecided=["replicas differ from 0 to 4"],
        scrub="looks at file 1 of 3",
        healed=healed,
    )
    lines = facts(view({**HEALTHY, "b": ill}), NOW_MS)
    assert lines[2:] == [
        "log of b: cannot be healed yet: no other node answers",
        "log of b: an operator has to decide: replicas differ from 0 to 4",
        "log of b: scrub: looks at file 1 of 3",
        "log of b: healed from 70 to 90 with the bytes of c (zeros), and 1 before",
    ]
    assert "its log is damaged from 7 to 8 (a flip)" in text_of(view({**HEALTHY, "b": ill}))


def test_everything_is_printed() -> None:
    text = text_of(view({**HEALTHY, "b": "connection to 10.0.0.2:10911: [Errno 111]"}))
    assert "a is master" in text
    assert "4.2 s" in text
    assert "incarnat" in text
    assert "[Errno 111]" in text


def test_the_reasons_of_all_nodes_are_printed_when_there_is_no_master() -> None:
    text = text_of(view({"a": NO_ANSWER, "b": status("b")}, records(leader=None)))
    assert f"a: {NO_ANSWER}" in text
    assert "c: not asked" in text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (119, "119 s"), (120, "2 min"), (7200, "2 h"), (200_000, "2 days")],
)
def test_durations_are_for_people(seconds: int, text: str) -> None:
    assert human_duration(seconds) == text
