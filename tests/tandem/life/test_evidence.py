from tandem.life.evidence import Gap
from tests.tandem.life.samples import KEY, copy, evidence, stored


def test_a_gap_is_noted_once() -> None:
    found = evidence()
    found.gap("n2", "away")
    found.gap("n2", "away")
    found.gap("n3", "away", "start it")
    assert found.gaps == [Gap(what="n2", why="away"), Gap(what="n3", why="away", remedy="start it")]
    assert evidence().gaps == []


def test_a_family_is_known_by_unique_key_else_by_the_first_place() -> None:
    assert copy(stored()).family == KEY
    retry = stored(properties={"UNIQ_KEY": "", "ORIGIN_MESSAGE_ID": "X"})
    assert copy(retry).family == "X"
    plain = stored(properties={"UNIQ_KEY": ""})
    assert copy(plain).family == plain.offset_msg_id
