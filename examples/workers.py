"""A worker: takes one message at a time, with as many other workers as you start, and no queues.

    python examples/workers.py [NAME_SERVERS [SECONDS]]

What is not acknowledged within a minute comes again, to whichever worker asks next: kill one while
it works, and see. It ends when nothing has come for so many seconds (5).

NAME_SERVERS: all of them, `host:port` with `;` between.
"""

import sys

import tandem

NAME_SERVERS = "127.0.0.1:9876;127.0.0.2:9876;127.0.0.3:9876"  # of cluster.yaml


def main(name_servers: str, idle_seconds: float) -> None:
    """Work until nothing comes any more."""
    with tandem.BlockingSimpleConsumer(name_servers, group="workers") as consumer:
        wait_ms = round(idle_seconds * 1000)
        while messages := consumer.receive("examples", 1, invisible_ms=60_000, wait_ms=wait_ms):
            (message,) = messages
            print(f"attempt {message.reconsume_times + 1}: {message.body.decode()}", flush=True)
            if not consumer.ack(message):
                print("too late: another worker may have it", file=sys.stderr)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    main(
        arguments[0] if arguments else NAME_SERVERS,
        float(arguments[1]) if arguments[1:] else 5.0,
    )
