"""Print what produce.py sent, and remember how far we got. Usage: consume.py [NAME_SERVERS].

NAME_SERVERS: all of them, `host:port` with `;` between. One that has just started knows less than
the others.
"""

import sys

import trio

import tandem

NAME_SERVERS = "127.0.0.1:9876;127.0.0.2:9876;127.0.0.3:9876"  # of cluster.yaml


async def main(name_servers: str) -> None:
    """Print the messages that are there and that this group has not seen yet."""
    async with tandem.PullConsumer(name_servers, group="examples") as consumer:
        seen: dict[int, int] = {}
        messages = consumer.messages("examples", start="committed", until_end=True)
        async for message in messages:
            print(
                f"queue {message.queue_id} offset {message.queue_offset}: {message.body.decode()}"
            )
            seen[message.queue_id] = message.queue_offset + 1
        for queue in await consumer.fetch_message_queues("examples"):
            if queue.queue_id in seen:
                await consumer.update_consume_offset(queue, seen[queue.queue_id])


if __name__ == "__main__":
    trio.run(main, sys.argv[1] if sys.argv[1:] else NAME_SERVERS)
