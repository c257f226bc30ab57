import math

from tandem.drill.replication import Replication, SlaveReport
from tandem.drill.timeline import Timeline


def replication() -> Replication:
    return Replication({"broker-a-1": "127.0.0.2", "broker-a-2": "127.0.0.3"}, Timeline())


def test_nobody_is_in_sync_before_the_master_said_so() -> None:
    assert not replication().behind_at_most(1 << 40)


def test_all_slaves_have_to_be_near_enough() -> None:
    view = replication()
    view.sampled(1.0, 1000, [SlaveReport("127.0.0.2", 1000, 0), SlaveReport("127.0.0.3", 900, 100)])

    assert view.behind_at_most(100)
    assert not view.behind_at_most(99)
    assert str(view) == "broker-a-1 in sync, broker-a-2 100 bytes behind"


def test_a_lost_slave_falls_behind_its_last_report() -> None:
    timeline = Timeline()
    view = Replication({"broker-a-1": "127.0.0.2"}, timeline)
    view.sampled(1.0, 1000, [SlaveReport("127.0.0.2", 1000, 0)])
    view.sampled(2.0, 5000, [])

    assert not view.behind_at_most(1 << 40)
    assert str(view) == "broker-a-1 not connected, 4,000 bytes behind"
    assert [(point.lag_bytes, point.connected) for point in timeline.lag["broker-a-1"]] == [
        (0, True),
        (4000, False),
    ]


def test_a_stranger_is_ignored() -> None:
    view = replication()
    view.sampled(1.0, 10, [SlaveReport("127.0.0.9", 10, 0)])

    assert not view.behind_at_most(0)


def test_a_silent_master_says_nothing_about_its_slaves() -> None:
    timeline = Timeline()
    view = Replication({"broker-a-1": "127.0.0.2", "broker-a-2": "127.0.0.3"}, timeline)
    view.sampled(1.0, 0, [SlaveReport("127.0.0.2", 0, 0), SlaveReport("127.0.0.3", 0, 0)])
    view.silent(2.0)

    assert view.sampled_at == 2.0
    assert math.isnan(timeline.lag["broker-a-1"][-1].lag_bytes)
    assert not view.behind_at_most(0)
    assert str(view) == "the master does not answer"


def test_where_the_log_ended_before_the_load_is_kept() -> None:
    view = replication()
    assert view.log_end_at_first is None
    view.silent(0.5)
    view.sampled(1.0, 1000, [])
    view.sampled(2.0, 5000, [])
    assert view.log_end_at_first == 1000
