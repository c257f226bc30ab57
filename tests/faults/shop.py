"""An application in Python, as a process of its own: what it does, a line at a time.

python -m tests.faults.shop run SERVERS DIRECTORY USER SECRET OTHER
python -m tests.faults.shop wait SERVERS DIRECTORY USER SECRET TOPIC
python -m tests.faults.shop once SERVERS DIRECTORY USER SECRET

`run` tries first what it may not: `refused CODE` for a send to the other's topic, a pull from it,
and a pull by its group. Then it sends to its own topic and consumes from it, until it is killed:
`sending KEY`, `sent KEY` when that is acknowledged, `got KEY`. `wait` pulls once at the end of a
queue and says `waiting`, then how that ended: `answered`, or `ended CODE`. `once` sends one message
for which it has three seconds: `SEND_OK`, or the name of what it got instead.
"""

import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final

import trio

import tandem

HOLD_MS: Final = 60_000
ONCE_MS: Final = 3_000
BETWEEN_SECONDS: Final = 0.02

say = partial(print, flush=True)


def access_of(servers: str, directory: str, user: str, secret: str) -> tandem.ClusterAccess:
    """Whom to ask, and as whom."""
    tls = Path(directory)
    files = tandem.TLSFiles(str(tls / "ca.pem"), str(tls / f"{user}.pem"), str(tls / f"{user}.key"))
    return tandem.ClusterAccess(servers, user, secret, tls=files)


async def run(access: tandem.ClusterAccess, user: str, other: str) -> None:
    """Try what is another's, and go on with one's own."""
    async with (
        tandem.Producer(access, group=user, resend_until_ok=True) as producer,
        tandem.PullConsumer(access, group=user) as puller,
        tandem.PullConsumer(access, group=other) as stranger,
        tandem.Consumer(access, group=user) as consumer,
        trio.open_nursery() as nursery,
    ):
        queue = (await puller.fetch_message_queues(f"{user}-orders"))[0]
        elsewhere = tandem.MessageQueue(f"{other}-orders", queue.broker_name, 0)
        await refused(partial(producer.send, tandem.Message(f"{other}-orders", b"not mine")))
        await refused(partial(puller.pull, elsewhere, 0))
        await refused(partial(stranger.pull, queue, 0))
        nursery.start_soon(consume, consumer, user)
        for number in range(10_000_000):
            await send(producer, user, f"{user}-{number}")
            await trio.sleep(BETWEEN_SECONDS)


async def refused(action: Callable[[], Awaitable[object]]) -> None:
    """Try what is not allowed."""
    try:
        await action()
    except tandem.BrokerError as error:
        say("refused", error.code)
    else:
        say("not refused")


async def send(producer: tandem.Producer, user: str, key: str) -> None:
    """Send one message until it is safe."""
    say("sending", key)
    while True:
        try:
            await producer.send(tandem.Message(f"{user}-orders", key.encode(), keys=key))
        except tandem.ClientError as error:
            say(f"{key}: {error}", file=sys.stderr)
            await trio.sleep(0.1)
        else:
            say("sent", key)
            return


async def consume(consumer: tandem.Consumer, user: str) -> None:
    """Say what comes."""
    async for message in consumer.subscribe(f"{user}-orders"):
        say("got", message.body.decode())


async def wait(access: tandem.ClusterAccess, user: str, topic: str) -> None:
    """Wait for a message that does not come."""
    async with tandem.PullConsumer(access, group=user) as puller:
        queue = (await puller.fetch_message_queues(topic))[0]
        end = await puller.max_offset(queue)
        say("waiting")
        try:
            await puller.pull(queue, end, suspend_timeout_ms=HOLD_MS)
        except tandem.ClientError as error:
            say("ended", getattr(error, "code", type(error).__name__))
        else:
            say("answered")


async def once(access: tandem.ClusterAccess, user: str) -> None:
    """Send one message, and do not wait for better times."""
    async with tandem.Producer(
        access,
        group=user,
        resend_until_ok=False,
        send_msg_timeout_ms=ONCE_MS,
        attempt_timeout_ms=ONCE_MS // 2 - 1,
    ) as producer:
        try:
            result = await producer.send(tandem.Message(f"{user}-orders", b"once", keys="once"))
        except tandem.ClientError as error:
            say(type(error).__name__)
        else:
            say(result.status.value)


async def main(*words: str) -> None:
    """Do what the command line says."""
    access, user = access_of(*words[1:5]), words[3]
    if words[0] == "run":
        await run(access, user, words[5])
    elif words[0] == "wait":
        await wait(access, user, words[5])
    else:
        await once(access, user)


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
