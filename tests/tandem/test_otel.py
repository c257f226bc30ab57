"""Spans around sends and messages, with OpenTelemetry's own SDK, which keeps them in memory."""

from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import tandem
from tandem.client.errors import RouteCause, RouteNotFoundError
from tandem.client.hooks import ConsumeOutcome, TransactionEnd
from tandem.client.results import MessageQueue, SendResult, SendStatus
from tandem.otel import TRACE_CONTEXT, TRACE_PARENT, Telemetry
from tandem.testing import RunningCluster, running_fenced_cluster
from tests.support.patience import PATIENCE_SECONDS, PATIENT_LEASE
from tests.tandem.client.consumer_world import a_world
from tests.tandem.client.either_loop import under_either_loop
from tests.tandem.client.fake_broker import message_ext

MESSAGE = tandem.Message("T", b"12345", keys="a b", tags="x")
PARENT = "00-6b2554735b57541147bcbec9bf855c6a-19577a69b24acd64-01"
"""As the Java agent has written it."""


class Bench:
    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.telemetry = Telemetry(provider)
        self.tracer = provider.get_tracer("application")

    def spans(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def send(
        self,
        *messages: tandem.Message,
        outcomes: Sequence[SendResult | BaseException],
        is_half: bool = False,
    ) -> tuple[list[tandem.Message], ReadableSpan]:
        sent, ended = self.telemetry.sending("PG", messages, is_half=is_half)
        ended(outcomes)
        return list(sent), self.spans()[-1]


def stored(status: SendStatus = SendStatus.SEND_OK) -> SendResult:
    return SendResult(status, "ID", "", MessageQueue("T", "broker-a", 3), 0, "too few")


def parent_of(span: ReadableSpan) -> str:
    context = span.get_span_context()
    assert context is not None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def test_a_send_is_a_span_whose_context_travels_with_the_message() -> None:
    [message], span = Bench().send(MESSAGE, outcomes=[stored()])
    assert (span.name, span.kind, span.status.status_code) == (
        "send T",
        SpanKind.PRODUCER,
        StatusCode.UNSET,
    )
    assert dict(span.attributes or {}) == {
        "messaging.system": "rocketmq",
        "messaging.destination.name": "T",
        "messaging.rocketmq.client_group": "PG",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.message.body.size": 5,
        "messaging.rocketmq.message.type": "normal",
        "messaging.rocketmq.message.tag": "x",
        "messaging.rocketmq.message.keys": ("a", "b"),
        "messaging.message.id": "ID",
        "messaging.destination.partition.id": "3",
    }
    assert message.properties == {TRACE_PARENT: parent_of(span)}
    assert message.body == MESSAGE.body


def test_it_is_below_the_span_of_who_sends() -> None:
    bench = Bench()
    with bench.tracer.start_as_current_span("order") as outer:
        _, span = bench.send(MESSAGE, outcomes=[stored()])
    assert span.parent is not None
    assert span.parent.span_id == outer.get_span_context().span_id


def test_a_batch_is_one_span_and_all_its_messages_have_it() -> None:
    sent, span = Bench().send(MESSAGE, MESSAGE, outcomes=[stored()])
    assert (span.attributes or {})["messaging.batch.message_count"] == 2
    assert [each.properties[TRACE_PARENT] for each in sent] == [parent_of(span)] * 2


def test_a_message_that_has_a_context_keeps_it_and_the_send_is_linked() -> None:
    own = tandem.Message("T", b"", properties={TRACE_PARENT: PARENT})
    [message], span = Bench().send(own, outcomes=[stored()])
    assert message.properties == {TRACE_PARENT: PARENT}
    [link] = span.links
    assert f"{link.context.span_id:x}" == "19577a69b24acd64"


@pytest.mark.parametrize("text", ["", "x", "00-0-0-01", "\x00"])
def test_a_context_that_is_none_is_left_as_it_is(text: str) -> None:
    own = tandem.Message("T", b"", properties={TRACE_PARENT: text})
    [message], span = Bench().send(own, outcomes=[stored()])
    assert message.properties == {TRACE_PARENT: text}
    assert not span.links


@pytest.mark.parametrize(
    ("message", "is_half", "kind"),
    [
        (tandem.Message("T", b""), True, "transaction"),
        (tandem.Message("T", b"", delay_time_level=1), False, "delay"),
        (tandem.Message("T", b"", sharding_key="k"), False, "fifo"),
    ],
)
def test_what_kind_of_message_it_was(message: tandem.Message, kind: str, *, is_half: bool) -> None:
    _, span = Bench().send(message, outcomes=[stored()], is_half=is_half)
    assert (span.attributes or {})["messaging.rocketmq.message.type"] == kind


@pytest.mark.parametrize(
    ("outcomes", "error_type"),
    [
        ([RouteNotFoundError("T", RouteCause.NO_TOPIC, "gone")], "RouteNotFoundError"),
        ([KeyboardInterrupt()], "KeyboardInterrupt"),
        ([stored(SendStatus.FLUSH_SLAVE_TIMEOUT)], "FLUSH_SLAVE_TIMEOUT"),
        ([stored(), RouteNotFoundError("T", RouteCause.NO_TOPIC, "gone")], "RouteNotFoundError"),
    ],
)
def test_what_is_not_ok_is_an_error(
    outcomes: list[SendResult | BaseException], error_type: str
) -> None:
    _, span = Bench().send(*[MESSAGE] * len(outcomes), outcomes=outcomes)
    assert span.status.status_code is StatusCode.ERROR
    assert (span.attributes or {})["error.type"] == error_type


def test_nothing_was_to_be_sent() -> None:
    sent, span = Bench().send(outcomes=[ValueError()])
    assert sent == []
    assert span.name == "send "


def test_the_end_of_a_transaction_is_a_span() -> None:
    bench = Bench()
    bench.telemetry.transaction_ended("PG", TransactionEnd("T", "ID", "", "", "", "commit"))
    [span] = bench.spans()
    assert (span.name, (span.attributes or {})["messaging.operation.name"]) == (
        "settle T",
        "commit",
    )


@pytest.mark.parametrize("name", [TRACE_PARENT, TRACE_CONTEXT])
def test_processing_goes_on_with_the_trace_of_the_send(name: str) -> None:
    bench = Bench()
    message = message_ext(topic="T", properties={name: PARENT, "UNIQ_KEY": "ID", "TAGS": "x"})
    processing = bench.telemetry.consuming("CG", message)
    with processing.handling():
        current = trace.get_current_span().get_span_context()
    processing.ended(ConsumeOutcome.DONE)
    [span] = bench.spans()
    assert (span.name, span.kind) == ("process T", SpanKind.CONSUMER)
    assert span.parent is not None
    assert f"{span.parent.span_id:x}" == "19577a69b24acd64"
    assert span.get_span_context() == current
    attributes = span.attributes or {}
    assert attributes["messaging.message.id"] == "ID"
    assert attributes["messaging.rocketmq.message.delivery_count"] == 1
    assert attributes["tandem.outcome"] == "done"
    assert span.status.status_code is StatusCode.UNSET


@pytest.mark.parametrize("outcome", [ConsumeOutcome.RETRY, ConsumeOutcome.DEAD_LETTER])
def test_what_was_not_handled_is_an_error(outcome: ConsumeOutcome) -> None:
    bench = Bench()
    bench.telemetry.consuming("CG", message_ext()).ended(outcome)
    assert bench.spans()[0].status.status_code is StatusCode.ERROR


@under_either_loop
async def test_the_span_of_a_message_that_a_closed_consumer_has_left_ends() -> None:
    bench = Bench()
    async with a_world() as world:
        world.broker.store("orders", 0, b"a")
        async with world.consumer(hooks=[bench.telemetry]) as consumer:
            await anext(aiter(consumer.subscribe("orders")))
    [span] = bench.spans()
    assert (span.attributes or {})["tandem.outcome"] == "left"
    assert span.status.status_code is StatusCode.UNSET


def test_without_an_sdk_nothing_is_sent_along() -> None:
    [message], ended = Telemetry().sending("PG", [MESSAGE], is_half=False)
    ended([stored()])
    assert message.properties == {}


@pytest.mark.fault
@pytest.mark.slow
@pytest.mark.xdist_group("clients")
async def test_one_trace_goes_through_a_retry_and_a_change_of_master(tmp_path: Path) -> None:
    bench, tries = Bench(), 0

    async def handle(message: tandem.ReceivedMessage) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            await anyio.to_thread.run_sync(_switch, cluster)
            await message.retry(1)
        else:
            consumer.stop()

    with running_fenced_cluster(tmp_path, settings=PATIENT_LEASE) as cluster:
        servers, hooks = cluster.name_servers, [bench.telemetry]
        async with (
            tandem.Producer(servers, group="PG", hooks=hooks) as producer,
            tandem.Consumer(servers, group="CG", hooks=hooks) as consumer,
        ):
            await producer.send(MESSAGE)
            with anyio.fail_after(PATIENCE_SECONDS):
                await consumer.consume("T", handle, concurrency=1)
    sent, *processed = sorted(bench.spans(), key=lambda span: span.start_time or 0)
    assert [span.name for span in processed] == ["process T", "process T"]
    assert [(span.attributes or {})["tandem.outcome"] for span in processed] == ["retry", "done"]
    context = sent.get_span_context()
    assert context is not None
    for span in processed:
        assert span.parent is not None
        assert (span.parent.trace_id, span.parent.span_id) == (context.trace_id, context.span_id)


def _switch(cluster: RunningCluster) -> None:
    killed = cluster.kill_master()
    cluster.wait_for_master(other_than=killed)
