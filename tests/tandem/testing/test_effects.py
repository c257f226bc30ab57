import pytest

from tandem.testing.effects import Effects
from tandem.testing.errors import HandledTwiceError, LostError, OrderError, UnknownEffectError


def good_run() -> Effects:
    """Two sharding keys, each in order; of one send nobody knows what became of it."""
    effects = Effects()
    for number in range(6):
        effects.sending(number, sharding_key=number % 2)
        if number != 3:
            effects.sent(number)
    for number in (0, 2, 1, 4, 3, 5):
        effects.handled(number)
    return effects


def test_a_good_run_keeps_every_promise() -> None:
    effects = good_run()
    effects.check()
    assert effects.missing == []


def test_nothing_at_all_breaks_no_promise() -> None:
    Effects().check()


def test_what_is_handled_twice_is_found() -> None:
    effects = good_run()
    effects.handled(4)
    effects.handled(4)
    effects.handled(1)
    with pytest.raises(HandledTwiceError) as raised:
        effects.check_once()
    assert raised.value.times == {4: 3, 1: 2}
    effects.check_none_lost()
    effects.check_order()


def test_what_was_answered_and_never_handled_is_found() -> None:
    effects = good_run()
    effects.sending("last")
    effects.check_none_lost()
    effects.sent("last")
    assert effects.missing == ["last"]
    with pytest.raises(LostError) as raised:
        effects.check_none_lost()
    assert raised.value.effects == ["last"]
    effects.check_once()


def test_a_key_out_of_order_is_found_and_two_keys_are_free() -> None:
    effects = Effects()
    for number, sharding_key in ((1, "a"), (2, "b"), (3, "a"), (4, "a")):
        effects.sending(number, sharding_key=sharding_key)
    for number in (2, 1, 4, 3):
        effects.handled(number)
    with pytest.raises(OrderError) as raised:
        effects.check_order()
    assert (raised.value.sharding_key, raised.value.before, raised.value.effect) == ("a", 4, 3)


def test_what_comes_again_is_not_out_of_order() -> None:
    effects = Effects()
    for number in range(3):
        effects.sending(number)
    for number in (0, 1, 0, 1, 2):
        effects.handled(number)
    effects.check_order()


def test_what_was_never_sent_has_no_place_in_an_order() -> None:
    effects = Effects()
    effects.sending(1)
    for number in (99, 1, 98):
        effects.handled(number)
    effects.check_order()


def test_a_send_that_began_again_keeps_its_place() -> None:
    effects = Effects()
    effects.sending(1)
    effects.sending(2)
    effects.sending(1)
    for number in (1, 2):
        effects.handled(number)
    effects.check_order()


def test_an_answer_to_nothing_is_an_error() -> None:
    with pytest.raises(UnknownEffectError) as raised:
        Effects().sent(7)
    assert raised.value.effect == 7


def test_each_broken_promise_fails_a_test_as_an_assertion_does_and_names_a_remedy() -> None:
    for error in (HandledTwiceError({1: 2}), LostError([1]), OrderError("a", 2, 1)):
        assert isinstance(error, AssertionError)
        assert ";" in str(error)
