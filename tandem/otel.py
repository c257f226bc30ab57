"""OpenTelemetry: spans around sends and messages, one trace from a producer to its consumers.

    telemetry = Telemetry()
    Producer(..., hooks=[telemetry])      a span `send T` for each call; its context travels with
                                          the messages, in the property `traceparent`
    Consumer(..., hooks=[telemetry])      a span `process T` below it, from hand-out to the word
                                          about the message; current in handlers of `consume`

The names are those of OpenTelemetry's conventions for messaging with RocketMQ, and the properties
those of its Java agent: a trace goes on through Java's clients and through ours, and through
retries, for a message that comes again has the properties that it had.

Needs `pip install 'tandem-mq[otel]'`. Where spans go is the application's choice: without an SDK
there are none, and nothing is sent along.

Source: OpenTelemetry semantic conventions, Messaging spans, RocketMQ.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final

import msgspec

from tandem.client.hooks import ConsumeOutcome, Consumption, SendEnded, TransactionEnd
from tandem.client.results import SendResult, SendStatus
from tandem.wire.message import Message, MessageExt
from tandem.wire.message_properties import PROPERTY_TRACE_CONTEXT

try:
    from opentelemetry import propagate, trace
    from opentelemetry.util.types import AttributeValue
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "tandem.otel needs OpenTelemetry's API: pip install 'tandem-mq[otel]'", name=error.name
    ) from error

TRACE_CONTEXT: Final = PROPERTY_TRACE_CONTEXT
"""Where RocketMQ's gRPC clients keep the `traceparent`. Source: MessageConst."""

TRACE_PARENT: Final = "traceparent"

Attributes = dict[str, AttributeValue]


class Telemetry:
    """Makes spans. Both kinds of hook of `tandem.client.hooks`; any number of clients share one."""

    def __init__(self, tracer_provider: trace.TracerProvider | None = None) -> None:
        """Make spans with a provider; None: with the global one."""
        self._tracer = trace.get_tracer("tandem", tracer_provider=tracer_provider)

    # -- sends -----------------------------------------------------------------------------------

    def sending(
        self, group: str, messages: Sequence[Message], *, is_half: bool
    ) -> tuple[Sequence[Message], SendEnded]:
        """See `tandem.client.hooks.SendMessageHook`."""
        topic = messages[0].topic if messages else ""
        span = self._tracer.start_span(
            f"send {topic}",
            kind=trace.SpanKind.PRODUCER,
            attributes=_of_send(group, topic, messages, is_half=is_half),
            # Who made a message may have a span of its own, which the message then belongs to.
            links=[link for each in messages for link in _links(each.properties)],
        )
        carrier: dict[str, str] = {}
        propagate.inject(carrier, trace.set_span_in_context(span))

        def ended(outcomes: Sequence[SendResult | BaseException]) -> None:
            _note_outcomes(span, outcomes)
            span.end()

        return [_with(each, carrier) for each in messages], ended

    def transaction_ended(self, group: str, end: TransactionEnd) -> None:
        """See `tandem.client.hooks.SendMessageHook`."""
        span = self._tracer.start_span(
            f"settle {end.topic}",
            kind=trace.SpanKind.CLIENT,
            attributes={
                **_of(group, end.topic),
                "messaging.operation.name": end.state,
                "messaging.operation.type": "settle",
                "messaging.message.id": end.msg_id,
                "messaging.rocketmq.message.type": "transaction",
            },
        )
        span.end()

    # -- consuming -------------------------------------------------------------------------------

    def consuming(self, group: str, message: MessageExt) -> Consumption:
        """See `tandem.client.hooks.ConsumeMessageHook`."""
        attributes: Attributes = {
            **_of(group, message.topic),
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.consumer.group.name": group,
            "messaging.message.id": message.msg_id,
            "messaging.message.body.size": len(message.body),
            "messaging.destination.partition.id": str(message.queue_id),
            "messaging.rocketmq.message.delivery_count": message.reconsume_times + 1,
            **_tag_and_keys(message.tags, message.keys),
        }
        span = self._tracer.start_span(
            f"process {message.topic}",
            context=propagate.extract(_carrier(message.properties)),
            kind=trace.SpanKind.CONSUMER,
            attributes=attributes,
        )
        return _Processing(span)


class _Processing:
    """The span of one message in the hands of a consumer."""

    def __init__(self, span: trace.Span) -> None:
        self._span = span

    def handling(self) -> AbstractContextManager[object]:
        return trace.use_span(self._span)

    def ended(self, outcome: ConsumeOutcome) -> None:
        self._span.set_attribute("tandem.outcome", outcome.value)
        if outcome in (ConsumeOutcome.RETRY, ConsumeOutcome.DEAD_LETTER):
            self._span.set_status(trace.StatusCode.ERROR, outcome.value)
        self._span.end()


def _of(group: str, topic: str) -> Attributes:
    return {
        "messaging.system": "rocketmq",
        "messaging.destination.name": topic,
        "messaging.rocketmq.client_group": group,
    }


def _of_send(group: str, topic: str, messages: Sequence[Message], *, is_half: bool) -> Attributes:
    attributes: Attributes = {
        **_of(group, topic),
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
    }
    if len(messages) != 1:
        attributes["messaging.batch.message_count"] = len(messages)
        return attributes
    [message] = messages
    attributes["messaging.message.body.size"] = len(message.body)
    attributes["messaging.rocketmq.message.type"] = _type(message, is_half=is_half)
    return attributes | _tag_and_keys(message.tags, str(message.keys))


def _type(message: Message, *, is_half: bool) -> str:
    if is_half:
        return "transaction"
    if message.is_delayed:
        return "delay"
    return "fifo" if message.sharding_key else "normal"


def _tag_and_keys(tag: str, keys: str) -> Attributes:
    attributes: Attributes = {}
    if tag:
        attributes["messaging.rocketmq.message.tag"] = tag
    if keys:
        attributes["messaging.rocketmq.message.keys"] = keys.split()
    return attributes


def _links(properties: Mapping[str, str]) -> list[trace.Link]:
    if TRACE_PARENT not in properties:
        return []
    found = trace.get_current_span(propagate.extract(properties)).get_span_context()
    return [trace.Link(found)] if found.is_valid else []


def _with(message: Message, carrier: Mapping[str, str]) -> Message:
    """Return a message with the context of its span; one that has a context keeps it."""
    if not carrier or TRACE_PARENT in message.properties:
        return message
    return msgspec.structs.replace(message, properties={**message.properties, **carrier})


def _carrier(properties: Mapping[str, str]) -> Mapping[str, str]:
    if TRACE_PARENT in properties or TRACE_CONTEXT not in properties:
        return properties
    return {**properties, TRACE_PARENT: properties[TRACE_CONTEXT]}


def _note_outcomes(span: trace.Span, outcomes: Sequence[SendResult | BaseException]) -> None:
    results = [each for each in outcomes if isinstance(each, SendResult)]
    errors = [each for each in outcomes if not isinstance(each, SendResult)]
    if results:
        first = results[0]
        span.set_attribute("messaging.message.id", ",".join(each.msg_id for each in results))
        span.set_attribute("messaging.destination.partition.id", str(first.queue.queue_id))
    for error in errors[:1]:
        if isinstance(error, Exception):
            span.record_exception(error)
        span.set_attribute("error.type", type(error).__qualname__)
        span.set_status(trace.StatusCode.ERROR, f"{len(errors)} of {len(outcomes)}: {error}")
    unsafe = [each for each in results if each.status is not SendStatus.SEND_OK]
    if unsafe and not errors:
        span.set_attribute("error.type", unsafe[0].status.value)
        span.set_status(trace.StatusCode.ERROR, unsafe[0].reason or unsafe[0].status.value)
