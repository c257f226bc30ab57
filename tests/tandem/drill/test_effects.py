"""What faults did: a count that did not rise is a fault that did nothing."""

from tandem.drill.effects import Effects

SYNCS = ("broker-a-1", "syncs")


class Counter:
    def __init__(self) -> None:
        self.value = 3

    def __call__(self) -> int:
        return self.value


def begun(effects: Effects, count: Counter, fault: str = "slow") -> None:
    effects.begin(2.0, "slow-disk", fault, of=SYNCS, what="syncs were delayed", count=count)


def test_what_was_counted_while_a_fault_lasted_is_what_it_did() -> None:
    effects, count = Effects(), Counter()
    begun(effects, count)
    count.value = 10
    effects.end(SYNCS)
    count.value = 20
    effects.end(SYNCS)
    effects.end_all()

    (effect,) = effects.found
    assert (effect.count, effect.is_felt) == (7, True)
    assert (effect.scenario, effect.at_seconds) == ("slow-disk", 2.0)
    assert effect.in_words() == "slow: 7 syncs were delayed"
    assert effects.unfelt == []


def test_a_fault_that_nobody_felt_is_found_at_its_end_or_at_that_of_the_scenario() -> None:
    effects, count = Effects(), Counter()
    begun(effects, count)
    effects.end_all()
    assert [(effect.count, effect.is_felt) for effect in effects.unfelt] == [(0, False)]


def test_one_fault_ends_where_another_of_its_kind_begins() -> None:
    effects, count = Effects(), Counter()
    begun(effects, count, "ahead")
    count.value = 4
    begun(effects, count, "back")
    count.value = 9
    effects.end_all()
    assert [(effect.fault, effect.count) for effect in effects.found] == [("ahead", 1), ("back", 5)]


def test_what_is_done_at_once_is_taken_as_it_was_seen() -> None:
    effects = Effects()
    effects.note(1.0, "lost-disk", "lose", text="7 files", count=7, is_felt=True)
    effects.note(2.0, "lost-disk", "lose", text="none", count=0, is_felt=False)
    assert [effect.text for effect in effects.unfelt] == ["none"]
