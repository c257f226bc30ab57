"""Traces through Java's clients under OpenTelemetry's agent and through ours, either way round.

Java's clients know nothing of it: the agent puts the context into the properties of messages and
takes it from there. Nodes keep properties, also through retries and a change of master.
"""

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen
from typing import Any, Final, NamedTuple

import pytest
import trio
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import tandem
from tandem.otel import Telemetry
from tandem.testing import RunningCluster, running_fenced_cluster
from tests.compat.conftest import StartJava
from tests.support.patience import PATIENCE_SECONDS, until

pytestmark = [pytest.mark.long, pytest.mark.timeout(300), pytest.mark.xdist_group("rocketmq")]

FROM_JAVA, TO_JAVA = "FromJava", "ToJava"
LATER: Final = "later"
"""A message that its consumer wants again after a second."""

AGENT: Final = (
    "-Dotel.traces.exporter=logging-otlp",
    "-Dotel.metrics.exporter=none",
    "-Dotel.logs.exporter=none",
    "-Dotel.bsp.schedule.delay=100",
)
LOGGER: Final = "OtlpJsonLoggingSpanExporter - "


class Span(NamedTuple):
    """What both sides know of a span."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    message_id: str


class JavaSide:
    """The probe, and the spans that its agent has written."""

    def __init__(self, process: Popen[str], log: Path) -> None:
        self._process = process
        self._log = log
        self.ids: dict[str, str] = {}
        self.tries: dict[str, list[int]] = {}

    async def send(self, body: str) -> None:
        """Have a message sent; return when it is stored."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{body}\n")
        self._process.stdin.flush()
        await self.says(lambda: body in self.ids)

    async def says(self, holds: Callable[[], bool]) -> None:
        """Read what the probe says until something holds."""
        assert self._process.stdout is not None
        with trio.fail_after(PATIENCE_SECONDS):
            while not holds():
                line = await trio.to_thread.run_sync(
                    self._process.stdout.readline, abandon_on_cancel=True
                )
                assert line, self._log.read_text()[-4000:]
                match line.split():
                    case ["SENT", body, message_id]:
                        self.ids[body] = message_id
                    case ["GOT", body, tries]:
                        self.tries.setdefault(body, []).append(int(tries))

    def spans(self) -> list[Span]:
        """All that have ended, and were written."""
        found = []
        for line in self._log.read_text().splitlines():
            _, mark, text = line.partition(LOGGER)
            if mark:
                found += [
                    span for scope in json.loads(text)["scopeSpans"] for span in scope["spans"]
                ]
        return [
            Span(
                each["name"],
                each["traceId"],
                each["spanId"],
                each.get("parentSpanId", ""),
                _text(each, "messaging.message.id"),
            )
            for each in found
        ]


def _text(span: dict[str, Any], name: str) -> str:
    attributes = {each["key"]: each["value"] for each in span.get("attributes", [])}
    return str(attributes.get(name, {}).get("stringValue", ""))


class OurSide:
    """Our clients' spans, in memory."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.telemetry = Telemetry(provider)

    def spans(self, name: str) -> list[Span]:
        return [
            Span(
                each.name,
                f"{each.context.trace_id:032x}",
                f"{each.context.span_id:016x}",
                f"{each.parent.span_id:016x}" if each.parent else "",
                str((each.attributes or {}).get("messaging.message.id", "")),
            )
            for each in self._exporter.get_finished_spans()
            if each.name == name
        ]


async def consume(cluster: RunningCluster, ours: OurSide, seen: dict[str, list[int]]) -> None:
    """Consume what Java has sent; what is to come again is given back once."""
    async with tandem.Consumer(cluster.name_servers, "ours-c", hooks=[ours.telemetry]) as consumer:
        async for message in consumer.subscribe(FROM_JAVA):
            body = message.body.decode()
            seen.setdefault(body, []).append(message.reconsume_times)
            if body.startswith(LATER) and not message.reconsume_times:
                await message.retry(1)
            else:
                message.done()


def lead_to(children: list[Span], parents: list[Span]) -> None:
    """Expect that each span is in the trace of another one, and right below it."""
    known = {(each.trace_id, each.span_id) for each in parents}
    for each in children:
        assert (each.trace_id, each.parent_id) in known, (each, parents)


@pytest.mark.parametrize("kills", [False, True])
async def test_traces_go_through_javas_clients_and_through_ours(
    tmp_path: Path, start_java: StartJava, agent_jar: str, *, kills: bool
) -> None:
    """Once with a retry, and once with that and the master killed between sends and consumers."""
    ours, seen = OurSide(), dict[str, list[int]]()
    with running_fenced_cluster(tmp_path) as cluster:
        with tandem.BlockingAdmin(cluster.name_servers) as admin:
            for topic in (FROM_JAVA, TO_JAVA):
                admin.create_topic(topic)
        log = tmp_path / "agent.log"
        names = ";".join(f"{node.address}:9876" for node in cluster.spec.nodes)
        probe = start_java(
            *("AgentProbe", names, FROM_JAVA, TO_JAVA, 1000),
            options=(f"-javaagent:{agent_jar}", *AGENT),
            log_file=log,
        )
        java = JavaSide(probe, log)
        bodies = [LATER, "before"]
        async with tandem.Producer(
            cluster.name_servers, "ours-p", resend_until_ok=True, hooks=[ours.telemetry]
        ) as producer:
            for body in bodies:
                await java.send(body)
                await producer.send(tandem.Message(TO_JAVA, body.encode()))
            if kills:
                killed = await trio.to_thread.run_sync(cluster.kill_master)
                await trio.to_thread.run_sync(lambda: cluster.wait_for_master(other_than=killed))
                bodies.append("after")
                await java.send("after")
                await producer.send(tandem.Message(TO_JAVA, b"after"))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(consume, cluster, ours, seen)
                await until(lambda: set(seen) == set(bodies) and 1 in seen[LATER])
                nursery.cancel_scope.cancel()
        await java.says(lambda: set(java.tries) == set(bodies) and 1 in java.tries[LATER])

        def processed() -> list[Span]:
            return [each for each in java.spans() if each.name == f"{TO_JAVA} process"]

        await until(lambda: len(processed()) >= len(bodies) + 1)
        await until(lambda: len(ours.spans(f"process {FROM_JAVA}")) >= len(bodies) + 1)

    published = [each for each in java.spans() if each.name == f"{FROM_JAVA} publish"]
    consumed = ours.spans(f"process {FROM_JAVA}")
    lead_to(consumed, published)
    assert {each.message_id for each in consumed} >= set(java.ids.values())
    # The try that was given back, and the one after it, are two spans below one.
    again = [each for each in consumed if each.message_id == java.ids[LATER]]
    assert len(again) >= 2
    assert len({(each.trace_id, each.parent_id) for each in again}) == 1

    sent = ours.spans(f"send {TO_JAVA}")
    lead_to(processed(), sent)
    assert {each.parent_id for each in processed()} == {each.span_id for each in sent}
    assert len({each.trace_id for each in sent}) == len(bodies)
