import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tandem.cli.why_text import WIDTH, why_lines
from tandem.life.evidence import Gap, Look
from tandem.life.result import Why
from tandem.plain_text import plain
from tests.tandem.life.samples import KEY, fenced, group, stored, why


def text_of(found: Why) -> list[str]:
    return list(why_lines(found))


def test_what_matters_comes_first_and_every_line_fits_a_terminal() -> None:
    found = why(
        stored(offset=5), nodes=[fenced("n1"), fenced("n2")], groups=[group("g", ("T", 0, 2))]
    )
    lines = text_of(found)
    assert lines[0] == f"Message {KEY}"
    assert lines.index("") < lines.index("What happened")
    summary = lines[lines.index("") : lines.index("What happened")]
    assert any("Group g has not consumed it yet" in line for line in summary)
    assert all(len(line) <= WIDTH for line in lines)


def test_events_have_their_time_at_the_beginning_of_the_line() -> None:
    lines = text_of(why(stored(offset=5)))
    at = lines.index("What happened")
    assert lines[at + 1].startswith("2026-11-28 ")


def test_nothing_found_says_where_was_looked_and_what_is_missing() -> None:
    look = Look(where="topic T", how="by key", found=0, covers="all")
    gap = Gap(what="node n2", why="it is away", remedy="start it")
    lines = "\n".join(text_of(why(message="nope", looks=[look], gaps=[gap])))
    assert "No message was found" in lines
    assert "topic T: by key, all" in lines
    assert "node n2: it is away (start it)" in lines


def test_gaps_of_one_reason_are_one_item() -> None:
    gaps = [Gap(what=f"topic {name}", why="not allowed", remedy="ask alice") for name in "AB"]
    lines = text_of(why(message="nope", gaps=gaps))
    assert "- topic A; topic B: not allowed (ask alice)" in lines


def test_what_was_left_out_is_counted() -> None:
    found = msgspec.structs.replace(why(stored()), left_out=12)
    assert any("12 more messages" in line for line in text_of(found))


def test_a_terminal_is_not_moved_by_what_is_in_a_message() -> None:
    hostile = stored(properties={"KEYS": "\x1b[2J\u202e", "TAGS": "\r\n"})
    lines = text_of(why(hostile))
    assert all(plain(line) == line for line in lines)
    assert any("\\x1b[2J" in line for line in lines)


@given(st.text(min_size=1), st.text(), st.text())
def test_any_names_fit(key: str, topic: str, name: str) -> None:
    message = stored(topic, properties={"UNIQ_KEY": key})
    found = why(message, message=key, groups=[group(name, (topic, 0, 1))], nodes=[fenced(name)])
    assert all(len(line) <= WIDTH and plain(line) == line for line in text_of(found))
