import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ha.classic.group_transfer_service import MIB, GroupTransferService
from ha.errors import LocalHAError
from store.results import PutMessageStatus
from tests.support.reasons import words

PUT_OK = PutMessageStatus.PUT_OK
TIMEOUT = PutMessageStatus.FLUSH_SLAVE_TIMEOUT
NOT_AVAILABLE = PutMessageStatus.SLAVE_NOT_AVAILABLE

LIMIT = 256 * MIB


class Answers:
    """Collects what `done` was called with."""

    def __init__(self) -> None:
        self.given: list[tuple[int, PutMessageStatus, str]] = []
        self.rounds = 0

    def put(self, service: GroupTransferService, end_offset: int, deadline: float = 3.0) -> None:
        service.submit(
            end_offset,
            deadline,
            lambda status, reason: self.given.append((end_offset, status, reason)),
        )

    def count_round(self) -> None:
        self.rounds += 1

    @property
    def statuses(self) -> list[tuple[int, PutMessageStatus]]:
        return [(end, status) for end, status, _ in self.given]


def service_with(
    *connected: str,
    in_sync_replicas: int | None = None,
    slaves: tuple[str, ...] = ("a", "b"),
) -> tuple[GroupTransferService, Answers]:
    answers = Answers()
    service = GroupTransferService(
        slaves,
        max_gap_bytes=LIMIT,
        in_sync_replicas=in_sync_replicas,
        after_release=answers.count_round,
    )
    for name in connected:
        service.slave_connected(name)
        service.slave_attached(name, 0)
        service.slave_acked(name, 0)
    answers.rounds = 0
    return service, answers


def test_one_acknowledgement_answers_all_it_covers_in_one_round() -> None:
    service, answers = service_with("a", "b")
    for end in (100, 200, 300):
        answers.put(service, end)
    assert not answers.given
    service.slave_acked("a", 200)
    assert answers.statuses == [(100, PUT_OK), (200, PUT_OK)]
    assert answers.rounds == 1
    assert service.waiting_count == 1


def test_without_a_slave_the_answer_comes_at_once() -> None:
    service, answers = service_with()
    answers.put(service, 100)
    assert answers.given == [(100, NOT_AVAILABLE, "no slave connected")]


def test_a_slave_far_behind_is_no_slave() -> None:
    """The 4.x rule; source: HAService.isSlaveOK."""
    service, answers = service_with("a")
    answers.put(service, 312 * MIB)
    assert answers.given == [(312 * MIB, NOT_AVAILABLE, "slave a is 312 MiB behind, limit 256 MiB")]


@pytest.mark.parametrize(("gap_bytes", "waits"), [(LIMIT - 1, True), (LIMIT, False)])
def test_the_gap_limit_is_exact(gap_bytes: int, *, waits: bool) -> None:
    service, _ = service_with("a")
    assert (service.decide(gap_bytes) is None) is waits


def test_one_close_slave_is_enough_to_wait_for() -> None:
    service, answers = service_with("a", "b")
    service.slave_acked("b", 100 * MIB)
    answers.put(service, 300 * MIB)
    assert not answers.given


def test_a_slave_that_has_not_reported_cannot_be_waited_for() -> None:
    service, answers = service_with()
    service.slave_connected("a")
    answers.put(service, 100)
    assert answers.given == [(100, NOT_AVAILABLE, "slave a is connected but has not reported yet")]


def test_what_a_slave_asks_for_is_not_what_it_acknowledges() -> None:
    service, answers = service_with()
    service.slave_connected("a")
    service.slave_attached("a", 500)
    answers.put(service, 400)
    assert not answers.given
    service.slave_acked("a", 500)
    assert answers.statuses == [(400, PUT_OK)]


def test_a_refused_slave_is_named_when_nobody_else_is_there() -> None:
    service, answers = service_with()
    service.slave_connected("a")
    service.slave_lost("a", "is ahead of the master by 77 bytes: refused")
    answers.put(service, 100)
    assert answers.given[0][2] == (
        "no slave connected; slave a is ahead of the master by 77 bytes: refused"
    )
    service.slave_connected("a")
    service.slave_attached("a", 50)
    service.slave_lost("a")
    assert words(service.why_not_in_sync("a", 100)).endswith("refused")
    service.slave_connected("a")
    service.slave_acked("a", 50)
    service.slave_lost("a")
    assert service.decide(100) == (NOT_AVAILABLE, "no slave connected")


def test_a_put_that_is_replicated_already_is_answered_at_once() -> None:
    service, answers = service_with("a")
    service.slave_acked("a", 100)
    answers.put(service, 100)
    assert answers.statuses == [(100, PUT_OK)]


def test_a_put_times_out_at_its_deadline_and_not_before() -> None:
    service, answers = service_with("a")
    answers.put(service, 100, deadline=3.0)
    answers.put(service, 200, deadline=4.0)
    assert service.next_deadline() == 3.0
    service.expire(2.9)
    assert not answers.given
    service.expire(3.0)
    assert answers.statuses == [(100, TIMEOUT)]
    assert answers.rounds == 1
    assert service.next_deadline() == 4.0


def test_a_late_look_still_succeeds_if_the_acknowledgement_is_there() -> None:
    """GroupTransferService of 5.3.3 fails a request whose turn comes late without looking."""
    service, answers = service_with("a")
    answers.put(service, 100, deadline=3.0)
    service.slave_acked("a", 100)
    service.expire(1000.0)
    assert answers.statuses == [(100, PUT_OK)]


def test_a_timeout_says_which_slave_acknowledged_what() -> None:
    service, answers = service_with("a", slaves=("a", "b", "c"))
    service.slave_connected("b")
    service.slave_acked("a", 70)
    answers.put(service, 100)
    service.expire(3.0)
    assert answers.given[0][2] == (
        "no slave acknowledged offset 100 in time (a acknowledged 70, 30 bytes short, "
        "b has acknowledged nothing yet, c is not connected)"
    )


def test_those_who_wait_go_on_waiting_when_the_last_slave_is_lost() -> None:
    service, answers = service_with("a")
    answers.put(service, 100)
    service.slave_lost("a")
    assert not answers.given
    answers.put(service, 200)
    assert answers.statuses == [(200, NOT_AVAILABLE)]
    service.slave_connected("a")
    service.slave_attached("a", 0)
    service.slave_acked("a", 100)
    assert answers.statuses == [(200, NOT_AVAILABLE), (100, PUT_OK)]


def test_two_connections_of_one_slave_are_one_slave() -> None:
    service, answers = service_with("a", in_sync_replicas=3)
    answers.put(service, 100)
    service.slave_acked("a", 100)
    service.slave_connected("a")
    service.slave_attached("a", 0)
    service.slave_acked("a", 100)
    assert not answers.given


def test_a_new_connection_voids_what_the_older_one_acknowledged() -> None:
    service, _ = service_with("a")
    service.slave_acked("a", 500)
    service.slave_connected("a")
    assert service.replicated_offset == 0
    assert service.push2_slave_max_offset == 500


@pytest.mark.parametrize("in_sync_replicas", [0, 1])
def test_one_in_sync_replica_never_waits(in_sync_replicas: int) -> None:
    """Source: 5.3.3 CommitLog.handleHA: 0 <= needAckNums <= 1 is PUT_OK."""
    service, answers = service_with(in_sync_replicas=in_sync_replicas)
    answers.put(service, 100)
    assert answers.statuses == [(100, PUT_OK)]


def test_in_sync_replicas_counts_the_master_and_waits_for_the_others() -> None:
    service, answers = service_with("a", "b", in_sync_replicas=3)
    answers.put(service, 100)
    service.slave_acked("a", 100)
    assert not answers.given
    service.slave_acked("b", 150)
    assert answers.statuses == [(100, PUT_OK)]


def test_in_sync_replicas_times_out_where_4x_says_not_available() -> None:
    service, answers = service_with(in_sync_replicas=2)
    answers.put(service, 100)
    assert not answers.given
    service.expire(3.0)
    assert answers.statuses == [(100, TIMEOUT)]


def test_more_replicas_than_nodes_only_ever_time_out() -> None:
    service, answers = service_with("a", "b", in_sync_replicas=4)
    service.slave_acked("a", 100)
    service.slave_acked("b", 100)
    answers.put(service, 100)
    service.expire(3.0)
    assert answers.given == [
        (
            100,
            TIMEOUT,
            "fewer than 3 slaves acknowledged offset 100 in time "
            "(a acknowledged it, b acknowledged it)",
        )
    ]


@pytest.mark.parametrize(("end_offset", "deadline"), [(99, 3.0), (101, 2.9)])
def test_a_put_out_of_order_is_a_bug_of_the_caller(end_offset: int, deadline: float) -> None:
    service, answers = service_with("a")
    answers.put(service, 100, deadline=3.0)
    with pytest.raises(ValueError, match="out of order"):
        answers.put(service, end_offset, deadline)


def test_a_stranger_is_a_bug_of_the_caller() -> None:
    service, _ = service_with()
    with pytest.raises(LocalHAError):
        service.slave_acked("stranger", 1)


def test_why_not_in_sync() -> None:
    service, _ = service_with("a")
    assert service.why_not_in_sync("a", 100) is None
    assert service.why_not_in_sync("b", 100) == "is not connected"
    assert service.why_not_in_sync("a", 300 * MIB) == "is 300 MiB behind, limit 256 MiB"
    service.slave_connected("b")
    assert service.why_not_in_sync("b", 100) == "is connected but has not reported yet"
    service.slave_attached("b", 50)
    assert service.why_not_in_sync("b", 100) == "is connected but has not confirmed its log yet"
    service.slave_acked("b", 100)
    assert service.why_not_in_sync("b", 100) is None
    assert service.in_sync_slave_count(100) == 2


def test_an_odd_limit_is_told_in_bytes() -> None:
    service = GroupTransferService(["a"], max_gap_bytes=1000)
    service.slave_connected("a")
    service.slave_attached("a", 0)
    assert service.decide(1000) == (
        NOT_AVAILABLE,
        "slave a is 1000 bytes behind, limit 1000 bytes",
    )


EVENTS = st.one_of(
    st.tuples(st.just("put"), st.integers(1, 100)),
    st.tuples(st.sampled_from(["ack a", "ack b"]), st.integers(0, 400)),
    st.tuples(st.sampled_from(["lose a", "lose b", "connect a", "connect b"]), st.just(0)),
    st.tuples(st.just("wait"), st.integers(0, 4)),
)


@settings(deadline=None)
@given(st.lists(EVENTS, max_size=60), st.sampled_from([None, 1, 2, 3]))
def test_every_put_is_answered_once_and_ok_only_if_enough_slaves_hold_it(
    events: list[tuple[str, int]], in_sync_replicas: int | None
) -> None:
    service, answers = service_with("a", "b", in_sync_replicas=in_sync_replicas)
    needed = 1 if in_sync_replicas is None else in_sync_replicas - 1
    acked = {"a": [0], "b": [0]}
    end_offset, now, puts = 0, 0.0, 0
    for event, number in events:
        name = event[-1]
        if event == "put":
            end_offset += number
            puts += 1
            answers.put(service, end_offset, now + 3.0)
        elif event.startswith("ack") and service.slaves[name].connected:
            acked[name].append(min(number, end_offset))
            service.slave_acked(name, acked[name][-1])
        elif event.startswith("lose"):
            service.slave_lost(name)
        elif event.startswith("connect"):
            service.slave_connected(name)
            service.slave_attached(name, 0)
        elif event == "wait":
            now += number
            service.expire(now)
    service.expire(now + 100)
    assert service.waiting_count == 0
    assert sorted(end for end, _, _ in answers.given) == sorted({e for e, _, _ in answers.given})
    assert len(answers.given) == puts
    for end, status, reason in answers.given:
        assert (status is PUT_OK) == (reason == "")
        if status is PUT_OK:
            assert sum(max(offsets) >= end for offsets in acked.values()) >= needed
