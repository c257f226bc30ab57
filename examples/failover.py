"""Kill the master while messages are sent, and count what is lost: nothing that was acknowledged.

    tandem cluster up
    python examples/failover.py [CLUSTER_FILE [COUNT]]

The cluster has to have a fenced group. The killed node is started again at the end.
"""

import sys
from pathlib import Path

import trio

import tandem
from tandem.cluster.control import Command, Request, send_request
from tandem.cluster.spec import ClusterSpec, default_config, read_spec

TOPIC = "failover"
PAUSE_SECONDS = 0.02


async def send_through_it(spec: ClusterSpec, count: int) -> set[str]:
    """Send `count` messages, kill the master half-way; return what was acknowledged."""
    acknowledged = set()
    longest_seconds = 0.0
    killed = ""
    # Stored but not known to be safe? Send it again, until it is: copies can be told apart.
    async with tandem.Producer(
        spec.name_servers, group="examples", ack=tandem.Ack.REPLICATED, resend_until_ok=True
    ) as producer:
        for number in range(count):
            if number == count // 2:
                killed = await kill_master(spec)
            start = trio.current_time()
            result = await producer.send(tandem.Message(TOPIC, f"message {number}".encode()))
            longest_seconds = max(longest_seconds, trio.current_time() - start)
            if result.status is tandem.SendStatus.SEND_OK:
                acknowledged.add(result.msg_id)
            await trio.sleep(PAUSE_SECONDS)
    print(f"acknowledged {len(acknowledged)} of {count}; longest wait {longest_seconds:.2f} s")
    await tell(spec, "start", killed)
    return acknowledged


async def kill_master(spec: ClusterSpec) -> str:
    """Kill the master of the moment with SIGKILL; return its name."""
    async with tandem.Admin(spec.name_servers) as admin:
        status = await admin.fenced_status(spec.nodes[0].client_address)
    await tell(spec, "kill", status.master)
    print(f"killed {status.master}, the master of epoch {status.epoch}")
    return status.master


async def tell(spec: ClusterSpec, command: Command, node: str) -> None:
    """Tell the supervisor of the cluster what to do with a node."""
    await trio.to_thread.run_sync(send_request, spec.file, Request(command, node))


async def read_back(spec: ClusterSpec, acknowledged: set[str]) -> int:
    """Read everything; return how many acknowledged messages are missing."""
    duplicates = tandem.DuplicateFilter()
    copies_count = 0
    missing = set(acknowledged)
    async with tandem.PullConsumer(spec.name_servers, group="examples") as consumer:
        async for message in consumer.messages(TOPIC, until_end=True):
            copies_count += duplicates.is_duplicate(message)
            missing.discard(message.properties["UNIQ_KEY"])
    print(f"lost {len(missing)}; stored more than once: {copies_count}")
    return len(missing)


async def main(config: Path, count: int) -> int:
    """Return the exit status: 0 if nothing was lost."""
    spec = read_spec(config)
    acknowledged = await send_through_it(spec, count)
    return 1 if await read_back(spec, acknowledged) else 0


if __name__ == "__main__":
    given = sys.argv[1:]
    file = Path(given[0]) if given else default_config()
    sys.exit(trio.run(main, file, int(given[1]) if given[1:] else 200))
