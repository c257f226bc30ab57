from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tandem.client import BlockingAdmin, BlockingPullConsumer
from tandem.client.errors import ClientError
from tandem.spark.archive.disk import LocalDisk, locked
from tandem.spark.archive.manifest import unit_file
from tandem.spark.jobs.replay_job import (
    REQUEST_BYTES_MAX,
    LaneSender,
    requests_of,
    run_replay,
)
from tandem.spark.jobs.replay_plan import REPLAYED_FROM, begin, lanes_of, window_of
from tandem.spark.jobs.runner import HereRunner
from tandem.testing import running_cluster
from tandem.wire.access_control import PolicyEntryInfo
from tandem.wire.message import Message
from tests.support.small_archive import SmallArchive


class Broker:
    """Takes messages; ends the connection after so many requests."""

    def __init__(self) -> None:
        self.taken: list[tuple[int | None, Message]] = []
        self.requests_left = 10**9

    def send_batch(self, messages: Sequence[Message], *, queue_id: int | None = None) -> object:
        self.requests_left -= 1
        self.taken += [(queue_id, message) for message in messages]
        if self.requests_left < 0:  # stored, and never answered
            raise ClientError("no answer")
        return None

    @property
    def places(self) -> list[str]:
        return [message.properties[REPLAYED_FROM] for _, message in self.taken]


def send(small: SmallArchive, broker: Broker, **changes: Any) -> Any:  # noqa: ANN401
    settings = small.replay(**changes)
    window = window_of(settings)
    facts = begin(settings, window, LocalDisk())
    (lane,) = lanes_of(settings, window)
    sender = LaneSender(settings, facts, lane, broker, clock=lambda: 0.0, sleep=lambda _: None)
    return sender.run(write_queues=2)


def archived_orders(small: SmallArchive) -> list[str]:
    end = small.manifest.end_of("broker-a")
    assert end is not None
    return [
        f"broker-a/orders/{message.queue_id}/{message.queue_offset}"
        for message in small.log.messages
        if message.physical_offset < end and message.topic == "orders"
    ]


def test_a_replay_that_went_past_a_hole_does_not_go_on_when_it_is_filled(
    small: SmallArchive,
) -> None:
    gone = small.unit(0)
    unit_file(small.archive_path, gone.group, gone.first).unlink()
    broker = Broker()
    assert send(small, broker).error == ""
    before = len(broker.taken)
    assert 0 < before < len(archived_orders(small))
    small.archive()
    assert "has not been sent" in send(small, broker).error
    assert len(broker.taken) == before


def test_a_window_is_sent_once_and_in_the_order_of_each_queue(small: SmallArchive) -> None:
    broker = Broker()
    done = send(small, broker)
    wanted = archived_orders(small)
    assert sorted(broker.places) == sorted(wanted)
    assert done.messages == done.total == len(wanted)
    for queue_id in (0, 1):
        of_queue = [m.properties[REPLAYED_FROM] for q, m in broker.taken if q == queue_id]
        assert of_queue == [place for place in wanted if f"/{queue_id}/" in place]
    again = Broker()
    assert send(small, again).messages == 0
    assert again.taken == []


@pytest.mark.slow
def test_it_goes_on_where_it_stopped_and_repeats_can_be_told(small: SmallArchive) -> None:
    wanted = archived_orders(small)
    for requests in range(8):
        state = str(small.root / f"state-{requests}")
        broker = Broker()
        broker.requests_left = requests
        done = send(small, broker, state=state, checkpoint_messages=1)
        broker.requests_left = 10**9
        if not done.error:
            break
        assert "no answer" in done.error
        send(small, broker, state=state)
        assert set(broker.places) == set(wanted)
        keys = [message.properties["UNIQ_KEY"] for _, message in broker.taken]
        assert len(set(keys)) == len(wanted)
        assert len(keys) > len(wanted)  # what was not answered was sent again
    else:
        pytest.fail("it never got through")
    assert requests > 3


def test_a_lane_that_somebody_sends_is_left_alone(small: SmallArchive) -> None:
    with locked(small.root / "state" / "broker-a.lane"):
        done = send(small, Broker())
    assert "in use by another job" in done.error


def test_what_cannot_be_sent_is_told(small: SmallArchive) -> None:
    small.log.put("orders", b"x", sys_flag=0x80)
    small.put(200)
    small.archive()
    assert "a batch that is one record" in send(small, Broker()).error


def test_requests_are_bounded() -> None:
    small = Message("t", b"x")
    assert [len(request) for request in requests_of([small] * 600)] == [256, 256, 88]
    large = Message("t", bytes(REQUEST_BYTES_MAX // 2))
    assert [len(request) for request in requests_of([large] * 3)] == [1, 1, 1]
    assert list(requests_of([])) == []


def test_a_dry_run_counts(small: SmallArchive) -> None:
    settings = small.replay(messages_per_second=10)
    report = run_replay(settings, HereRunner(), dry_run=True)
    assert report.messages == len(archived_orders(small))
    assert report.seconds == pytest.approx(report.messages / 10)
    assert not (small.root / "state").exists()


@pytest.mark.fault
@pytest.mark.thorough
def test_a_cluster_with_tls_and_users_takes_a_replay_of_a_user(
    small: SmallArchive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = tmp_path / "nodes"
    places.mkdir()
    settings = {
        "tls": {"mode": "enforcing", "client_auth": "require"},
        "security": {"clients": "authorized"},
    }
    with running_cluster(places, slaves_count=0, settings=settings) as cluster:
        topic = cluster.topic()
        with BlockingAdmin(cluster.access) as admin:
            admin.create_user("replayer", "a long enough secret")
            admin.grant("replayer", [PolicyEntryInfo(f"Topic:{topic}", ["Pub"], decision="Allow")])
        assert cluster.access.tls is not None
        job = small.replay(
            name_servers=list(cluster.name_servers),
            topic=topic,
            tls=msgspec.to_builtins(cluster.access.tls),
        )
        with pytest.raises(ClientError):
            run_replay(job, HereRunner())
        monkeypatch.setenv("TANDEM_ACCESS_KEY", "replayer")
        monkeypatch.setenv("TANDEM_SECRET_KEY", "a long enough secret")
        assert run_replay(job, HereRunner()).messages == len(archived_orders(small))
        with BlockingPullConsumer(cluster.access, group="test") as consumer:
            found = list(consumer.messages(topic, until_end=True))
    assert {each.properties[REPLAYED_FROM] for each in found} == set(archived_orders(small))
    secret = b"a long enough secret"
    state = [path for path in Path(job.state).rglob("*") if path.is_file()]
    assert not [path for path in state if secret in path.read_bytes()]
