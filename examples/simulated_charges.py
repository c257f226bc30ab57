"""A consumer with a bug that few tests find, and a simulated cluster that finds it.

    python examples/simulated_charges.py naive [SEEDS]       says which seed shows the bug
    python examples/simulated_charges.py mended [SEEDS]      plays all seeds, and none fails

A shop sends orders; a service charges each customer. The naive service says that a message is done
before it has charged, and it charges whatever comes. In a run without faults nothing is wrong with
that. A seed kills the service between the two, or the master after it has stored an order and
before it has said so: then the producer sends it once more.
"""

import sys
from collections.abc import Awaitable, Callable

import trio

import tandem
from tandem.testing import Effects, SimulatedCluster, simulated_cluster

ORDERS = 12
PAUSE_SECONDS = 0.25
CHARGE_SECONDS = 0.25
SETTLE_SECONDS = 60.0


class CardCompany:
    """What the service pays with; it outlives each of its processes."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects
        self._known: set[str] = set()

    async def charge(self, order: str, *, idempotency_key: str = "") -> None:
        """Charge the customer of an order; once only for all calls with one key."""
        await trio.sleep(CHARGE_SECONDS)
        if not idempotency_key or idempotency_key not in self._known:
            self._known.add(idempotency_key)
            self._effects.handled(order)


Service = Callable[[list[str], CardCompany], Awaitable[None]]


async def naive(name_servers: list[str], cards: CardCompany) -> None:
    """Say that a message is done, and then do it; charge whatever comes."""
    async with tandem.Consumer(name_servers, group="billing", commit_interval_ms=100) as consumer:
        async for message in consumer.subscribe("Orders"):
            message.done()
            await cards.charge(message.keys)


async def mended(name_servers: list[str], cards: CardCompany) -> None:
    """Charge first, and have each order charged once; asking for the next message says done."""
    async with tandem.Consumer(name_servers, group="billing", commit_interval_ms=100) as consumer:
        async for message in consumer.subscribe("Orders"):
            await cards.charge(message.keys, idempotency_key=message.keys)


async def shop(name_servers: list[str], effects: Effects) -> None:
    """Send the orders, one after the other."""
    async with tandem.Producer(name_servers, group="shop", resend_until_ok=True) as producer:
        for number in range(ORDERS):
            order = f"order-{number}"
            effects.sending(order)
            result = await producer.send(tandem.Message("Orders", b"", keys=order))
            if result.status is tandem.SendStatus.SEND_OK:
                effects.sent(order)
            await trio.sleep(PAUSE_SECONDS)


async def each_order_is_charged_once(cluster: SimulatedCluster, service: Service) -> None:
    """What every seed plays."""
    effects = Effects()
    cards = CardCompany(effects)
    await cluster.start_process(service, cluster.name_servers, cards, name="billing")
    await shop(cluster.name_servers, effects)
    await cluster.recover()
    with trio.move_on_after(SETTLE_SECONDS):
        while effects.missing:  # noqa: ASYNC110 - virtual time costs nothing
            await trio.sleep(0.5)
    effects.check_none_lost()
    effects.check_once()


def main(service: Service, seeds: int) -> None:
    """Play the seeds, until one fails."""
    play = simulated_cluster(seeds=seeds)(each_order_is_charged_once)
    play(service)
    print("in all seeds that were played, each order was charged once")


if __name__ == "__main__":
    services = {"naive": naive, "mended": mended}
    if sys.argv[1:2] not in [[name] for name in services]:
        sys.exit(f"usage: python {sys.argv[0]} naive|mended [SEEDS]")
    main(services[sys.argv[1]], int(sys.argv[2]) if sys.argv[2:] else 1000)
