from pathlib import Path

import pytest

from tandem.cluster_file.choices import GroupKind
from tandem.drill.errors import BadScenarioError, NoScenarioError, WrongGroupError
from tandem.drill.scenario_file import (
    FOLDER,
    catalogue,
    choose,
    find_scenario,
    parse_scenario,
    read_scenario,
)

GOOD = """\
promise: Nothing is lost.
seconds: 12
short: true
settings:
  store: {max_message_size_bytes: 1000}
steps:
  - start the load
  - kill   the master
  - cut slave 1 from everything
  - expect a new master within 2.5 s
  - drain
"""


def test_a_file_says_what_is_promised_and_what_is_done() -> None:
    scenario = parse_scenario(GOOD, "mine", "mine.yaml")

    assert (scenario.name, scenario.promise, scenario.group) == (
        "mine",
        "Nothing is lost.",
        "fenced",
    )
    assert (scenario.seconds, scenario.short) == (12, True)
    assert scenario.settings == {"store": {"max_message_size_bytes": 1000}}
    assert [step.line for step in scenario.steps] == [7, 8, 9, 10, 11]
    assert scenario.steps[1].text == "kill the master"
    assert scenario.steps[1].words == {"who": "the master"}
    assert scenario.steps[3].words == {"seconds": "2.5"}
    assert scenario.needs == ("network",)


@pytest.mark.parametrize(
    ("text", "line", "complaint"),
    [
        ("promise: x\nsteps:\n  - kil the master\n", 3, "no sentence reads 'kil the master'"),
        ("promise: x\nsteps:\n  - drain\n  - kill: master\n", 4, "a step is one sentence"),
        ("promise: x\nsteps: drain\n", 2, "steps is a list of sentences"),
        ("promise: x\nsteps: []\n", 2, "steps is a list of sentences"),
        ("steps:\n  - drain\n", 1, "has no promise"),
        ("promise: x\n", 1, "has no steps"),
        ("promise: |\n  two\n  lines\nsteps: [drain]\n", 1, "promise is one line"),
        ("promise: x\ncolour: red\nsteps: [drain]\n", 2, "unknown key 'colour'"),
        ("promise: x\ngroup: best\nsteps: [drain]\n", 2, "fenced or classic, not 'best'"),
        ("promise: x\nseconds: soon\nsteps: [drain]\n", 2, "whole number, not 'soon'"),
        ("promise: x\nsettings: {nodes: {}}\nsteps: [drain]\n", 2, "not 'nodes'"),
        ("promise: x\nsettings: 7\nsteps: [drain]\n", 2, "sections of a cluster file"),
        (
            "promise: x\ngroup: classic\nsteps:\n  - expect a new master within 2 s\n",
            4,
            "is for fenced groups",
        ),
        (
            "promise: x\nsteps:\n  - expect sync sends to answer MAYBE\n",
            3,
            "MAYBE is no status of a send",
        ),
        ("- drain\n", 1, "has the keys promise and steps"),
        ("", 1, "has the keys promise and steps"),
        ("promise: [x\n", 2, "is not YAML"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(text: str, line: int, complaint: str) -> None:
    with pytest.raises(BadScenarioError) as caught:
        parse_scenario(text, "bad", "bad.yaml")
    assert str(caught.value).startswith(f"bad.yaml:{line}: ")
    assert complaint in str(caught.value)


def test_a_sentence_that_nobody_understands_is_answered_with_the_nearest() -> None:
    with pytest.raises(BadScenarioError, match=r"there is 'freeze \{who\}'"):
        parse_scenario("promise: x\nsteps: [freez the master]\n", "bad", "bad.yaml")
    with pytest.raises(BadScenarioError, match="sentences begin with ask, begin, check"):
        parse_scenario("promise: x\nsteps: [zzz coffee]\n", "bad", "bad.yaml")


def test_every_scenario_of_the_catalogue_can_be_read_and_ends_with_a_drain() -> None:
    found = catalogue()
    assert len(found) >= 25
    for scenario in found:
        assert scenario.promise.endswith(".")
        assert scenario.steps[0].text == "start the load"
        assert scenario.steps[-1].text == "drain"
        assert scenario.seconds > 0
    kinds = [scenario.group for scenario in found]
    assert kinds == sorted(kinds, reverse=True)
    assert sum(s.seconds for s in found if s.short) < 120, "the short form stays short"


def test_a_file_of_ones_own_is_found_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(GOOD)
    assert find_scenario(str(path)) == read_scenario(path)
    assert find_scenario("master-kill").name == "master-kill"
    with pytest.raises(BadScenarioError) as unread:
        find_scenario(str(tmp_path / "none.yaml"))
    assert isinstance(unread.value.__cause__, FileNotFoundError)
    with pytest.raises(NoScenarioError) as missing:
        find_scenario("earthquake")
    assert missing.value.name == "earthquake"


def test_what_is_played_by_default_depends_on_the_kind_of_group() -> None:
    def names(*wanted: str, kind: GroupKind = GroupKind.FENCED, short: bool = False) -> list[str]:
        return [each.name for each in choose(wanted, kind, short=short)]

    assert names() == ["master-kill", "master-freeze"]
    assert names(kind=GroupKind.CLASSIC) == ["slave-loss", "master-loss"]
    assert names("partition", "master-kill") == ["partition", "master-kill"]
    assert "master-kill" in names(short=True)
    assert names(kind=GroupKind.CLASSIC, short=True) == ["slave-loss", "master-loss"]
    assert set(names("all")) == {each.name for each in catalogue() if each.group == "fenced"}
    with pytest.raises(WrongGroupError, match="--config") as caught:
        names("slave-loss")
    assert caught.value.name == "slave-loss"


@pytest.mark.parametrize("folder", [FOLDER, FOLDER / "rocketmq"])
def test_no_phase_begins_while_nobody_can_answer(folder: Path) -> None:
    """A phase begins when the sends before it are answered, or after minutes.

    Sends of a group that elects are repeated: with all nodes down they would be waited for, and
    that time would count as the group's.
    """
    for each in catalogue(folder):
        if each.group != "fenced":
            continue
        kills = 0
        for step in each.steps:
            if step.text == "kill every node":
                kills = 2
            elif step.text == "kill the master":
                kills += 1
            elif step.text.startswith("start ") and step.text != "start the load":
                kills = 0
            assert kills < 2 or not step.text.startswith("begin "), (each.name, step.line)
            if step.text.startswith("expect everybody"):
                kills = 0
