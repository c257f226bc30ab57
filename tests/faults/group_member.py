"""One member of a consumer group: prints what it handles.

python -P -m tests.faults.group_member LOOP GROUP TOPIC NAME_SERVER...

LOOP is trio, asyncio or threads. Each line is `handled BODY RECONSUME_TIMES`, written at once: a
message counts as handled when its line is out. SIGTERM lets it leave in order.
"""

import signal
import sys

import anyio

import tandem

COMMIT_INTERVAL_MS = 1000


def tell(message: tandem.MessageExt) -> None:
    sys.stdout.write(f"handled {message.body.decode()} {message.reconsume_times}\n")
    sys.stdout.flush()


async def run_tasks(group: str, topic: str, name_servers: list[str]) -> None:
    async with tandem.Consumer(
        name_servers, group, commit_interval_ms=COMMIT_INTERVAL_MS
    ) as consumer:

        async def handle(message: tandem.ReceivedMessage) -> None:
            tell(message)
            await anyio.sleep(0.002)

        async def leave_when_asked() -> None:
            with anyio.open_signal_receiver(signal.SIGTERM) as signals:
                async for _ in signals:
                    consumer.stop()
                    return

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(leave_when_asked)
            await consumer.consume(topic, handle, concurrency=4)


def run_threads(group: str, topic: str, name_servers: list[str]) -> None:
    with tandem.BlockingConsumer(
        name_servers, group, commit_interval_ms=COMMIT_INTERVAL_MS
    ) as consumer:
        signal.signal(signal.SIGTERM, lambda *_: consumer.stop())
        for message in consumer.subscribe(topic):
            tell(message)


def main() -> None:
    loop, group, topic, *name_servers = sys.argv[1:]
    if loop == "threads":
        run_threads(group, topic, name_servers)
    else:
        anyio.run(run_tasks, group, topic, name_servers, backend=loop)


if __name__ == "__main__":
    main()
