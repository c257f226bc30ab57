"""A service: handles what produce.py sends, with as many others of its group as you start.

    python examples/service.py [NAME_SERVERS]

Each message is handled at least once, by one of them. Ctrl-C or SIGTERM ends it in an orderly way:
what is being handled is finished, and the others take over its queues at once.

NAME_SERVERS: all of them, `host:port` with `;` between. One that has just started knows less than
the others.
"""

import asyncio
import signal
import sys

import tandem

NAME_SERVERS = "127.0.0.1:9876;127.0.0.2:9876;127.0.0.3:9876"  # of cluster.yaml


async def handle(message: tandem.ReceivedMessage) -> None:
    """Do the work. An error gives the message back: the group gets it again, later each time."""
    text = message.body.decode()
    print(f"queue {message.queue_id} offset {message.queue_offset}: {text}", flush=True)


async def main(name_servers: str) -> None:
    """Handle messages until a signal comes."""
    async with tandem.Consumer(name_servers, group="service") as consumer:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, consumer.stop)
        await consumer.consume("examples", handle, concurrency=8)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if sys.argv[1:] else NAME_SERVERS))
