from store.messages.arrivals import Arrivals
from store.messages.confirm_bound import ConfirmBound
from store.results import Arrival
from tests.support.listening import Listener

A: Arrival = (10, "T", 0, 1, None)
B: Arrival = (20, "T", 0, 2, None)
C: Arrival = (30, "U", 0, 1, 7)


def heard_by(arrivals: Arrivals) -> list[list[Arrival]]:
    heard: list[list[Arrival]] = []
    arrivals.listen(Listener(heard.append, lambda: None))
    return heard


def test_a_round_is_one_list_and_an_empty_one_is_none() -> None:
    arrivals = Arrivals(None)
    heard = heard_by(arrivals)
    arrivals.entered += (A, B)
    arrivals.end_round()
    arrivals.end_round()
    arrivals.readable([])
    arrivals.entered.append(C)
    arrivals.end_round()
    assert heard == [[A, B], [C]]


def test_nothing_is_kept_for_a_listener_that_comes_later() -> None:
    """A store that never runs, as a tool's, would keep all of them."""
    arrivals = Arrivals(None)
    arrivals.entered.append(A)
    arrivals.end_round()
    arrivals.readable([B])
    assert (heard_by(arrivals), arrivals.entered) == ([], [])


def test_below_a_bound_each_is_heard_when_it_can_be_read() -> None:
    bound = ConfirmBound()
    arrivals = Arrivals(bound)
    heard = heard_by(arrivals)
    arrivals.readable(bound.raise_to(15))
    arrivals.entered += (A, C, B)
    arrivals.end_round()
    assert heard == [[A]]
    arrivals.readable(bound.raise_to(40))
    assert heard == [[A], [B, C]], "in the order of the log"


def test_a_listener_that_ends_a_round_from_within_gets_nothing_twice() -> None:
    arrivals = Arrivals(None)
    heard: list[list[Arrival]] = []

    def arrived(found: list[Arrival]) -> None:
        heard.append(found)
        if len(heard) == 1:
            arrivals.entered.append(B)
        arrivals.end_round()

    arrivals.listen(Listener(arrived, lambda: None))
    arrivals.entered.append(A)
    arrivals.end_round()
    assert heard == [[A], [B]]


def test_an_answer_without_a_listener_is_harmless() -> None:
    arrivals = Arrivals(None)
    arrivals.answered()
    answers: list[bool] = []
    arrivals.listen(Listener(lambda _: None, lambda: answers.append(True)))
    arrivals.answered()
    assert answers == [True]
