"""Transactions against real nodes, whose master is killed between half and commit."""

import contextlib
from pathlib import Path

import pytest
import trio

import tandem
from tandem.client.transaction_flow import TransactionState
from tandem.testing import RunningCluster, running_fenced_cluster
from tests.support.patience import PATIENCE_MS, PATIENCE_SECONDS, PATIENT_LEASE

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.xdist_group("clients")]

OFTEN = PATIENT_LEASE | {
    "broker": {"transaction_check_interval_ms": 1_000, "transaction_timeout_ms": 1_000}
}


async def seen_in(cluster: RunningCluster, topic: str, wanted: set[bytes]) -> list[bytes]:
    """Read a topic until all wanted messages are there; return all."""
    bodies: list[bytes] = []
    async with tandem.PullConsumer(cluster.name_servers, group="CG") as consumer:
        with trio.fail_after(PATIENCE_SECONDS):
            async with contextlib.aclosing(consumer.messages(topic)) as messages:
                async for message in messages:
                    bodies.append(message.body)
                    if wanted <= set(bodies):
                        break
        return [message.body async for message in consumer.messages(topic, until_end=True)]


async def test_a_transaction_ends_once_although_its_master_is_killed(tmp_path: Path) -> None:
    asked: list[bytes] = []

    def check(message: tandem.MessageExt) -> TransactionState:
        asked.append(message.body)
        if message.body == b"late":
            return "commit"
        # On a busy machine it may be asked about others, too, before their own word comes.
        return "rollback" if message.body == b"given up" else "unknown"

    with running_fenced_cluster(tmp_path, settings=OFTEN) as cluster:
        async with tandem.Producer(
            cluster.name_servers,
            group="PG",
            transaction_check=check,
            send_msg_timeout_ms=PATIENCE_MS,
        ) as producer:
            async with producer.transaction(tandem.Message("T", b"committed")) as committed:
                pass
            assert committed.is_confirmed
            with pytest.raises(LookupError):
                async with producer.transaction(tandem.Message("T", b"rolled back")):
                    raise LookupError
            for body in (b"late", b"given up"):
                async with producer.transaction(tandem.Message("T", body)) as asked_later:
                    asked_later.unknown()
            async with producer.transaction(tandem.Message("T", b"switch")) as over_a_switch:
                killed = await trio.to_thread.run_sync(cluster.kill_master)
                await trio.to_thread.run_sync(lambda: cluster.wait_for_master(other_than=killed))
            assert over_a_switch.is_confirmed
            bodies = await seen_in(cluster, "T", {b"committed", b"late", b"switch"})
            with trio.fail_after(PATIENCE_SECONDS):
                while b"given up" not in asked:
                    await trio.sleep(0.05)
    assert sorted(bodies) == [b"committed", b"late", b"switch"]
