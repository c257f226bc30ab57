"""The language of faults."""

import pytest

from tests.sim.engine.faults import (
    CLIENT_VERBS,
    FENCED_VERBS,
    VERBS,
    Instruction,
    parse_instruction,
    parse_plan,
)


def test_an_instruction_reads_as_it_is_written() -> None:
    line = "at 1.500 slow broker-a-0 client-1 0.05 20000"
    instruction = parse_instruction(line)
    assert instruction == Instruction(1.5, "slow", ("broker-a-0", "client-1", "0.05", "20000"))
    assert str(instruction) == line


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("kill broker-a-0", "expected 'at SECONDS"),
        ("at 1.0 murder broker-a-0", "'murder' is not one of kill, kill-at-disk"),
        ("at 1.0 stall broker-a-0", "stall takes 2 arguments"),
        ("at soon kill broker-a-0", "could not convert"),
    ],
)
def test_a_line_outside_the_language_is_refused_with_the_reason(line: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse_instruction(line)


def test_prose_and_empty_lines_are_skipped() -> None:
    assert list(parse_plan(["# why", "", "at 1.000 kill broker-a-0"])) == [
        Instruction(1.0, "kill", ("broker-a-0",))
    ]


def test_what_happens_to_clients_is_in_the_language() -> None:
    line = "at 1.000 client-vanish 127.0.4.1"
    assert str(parse_instruction(line)) == line
    assert CLIENT_VERBS.keys().isdisjoint(FENCED_VERBS)


def test_fenced_groups_have_every_verb_of_classic_ones() -> None:
    assert VERBS.items() <= FENCED_VERBS.items()
