"""Send a few messages and say what became of each. Usage: produce.py [NAME_SERVERS [COUNT]].

NAME_SERVERS: all of them, `host:port` with `;` between. One that has just started knows less than
the others.
"""

import sys

import trio

import tandem

NAME_SERVERS = "127.0.0.1:9876;127.0.0.2:9876;127.0.0.3:9876"  # of cluster.yaml


async def main(name_servers: str, count: int) -> None:
    """Send `count` messages, one after the other."""
    async with tandem.Producer(name_servers, group="examples") as producer:
        for number in range(count):
            message = tandem.Message("examples", f"hello {number}".encode(), keys=f"key-{number}")
            try:
                result = await producer.send(message)
            except tandem.BrokerError as error:
                print(f"{number}: not stored: {error}")
            except tandem.ClientError as error:
                stored = "perhaps stored" if error.outcome_unknown else "not stored"
                print(f"{number}: {stored}: {error}")
            else:
                where = f"{result.queue.broker_name} queue {result.queue.queue_id}"
                # Anything but SEND_OK was in the master's log, too: unknown, not failed.
                print(f"{number}: {result.status.name} {where} offset {result.queue_offset}")


if __name__ == "__main__":
    given = sys.argv[1:]
    trio.run(main, given[0] if given else NAME_SERVERS, int(given[1]) if given[1:] else 10)
