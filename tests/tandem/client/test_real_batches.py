"""Batches that many tasks fill, over the kill of a master: nothing lost, nothing misplaced."""

from collections import defaultdict
from pathlib import Path
from typing import Final

import anyio
import pytest

import tandem
from tandem.testing import RunningCluster, running_fenced_cluster
from tests.support.patience import PATIENCE_MS, PATIENCE_SECONDS, PATIENT_LEASE

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.xdist_group("clients")]

TASKS: Final = 60
TOPIC: Final = "Batches"


class Sent:
    """What was acknowledged: by message, where it is. Every other task has a key of its own."""

    def __init__(self, cluster: RunningCluster) -> None:
        self.cluster = cluster
        self.places: dict[bytes, tuple[int, int, str]] = {}
        self.errors: list[tandem.ClientError] = []
        self._is_over = False

    async def send_over_a_kill(self) -> None:
        async with (
            tandem.Producer(
                self.cluster.name_servers, group="PG", send_msg_timeout_ms=PATIENCE_MS
            ) as producer,
            anyio.create_task_group() as tasks,
        ):
            for task in range(TASKS):
                tasks.start_soon(self._send_on, producer, task)
            await self._until_there_are(TASKS)
            killed = await anyio.to_thread.run_sync(self.cluster.kill_master)
            await anyio.to_thread.run_sync(lambda: self.cluster.wait_for_master(other_than=killed))
            await self._until_there_are(len(self.places) + TASKS)
            self._is_over = True

    async def _until_there_are(self, count: int) -> None:
        with anyio.fail_after(PATIENCE_SECONDS):
            while len(self.places) <= count:
                await anyio.sleep(0.1)

    async def _send_on(self, producer: tandem.Producer, task: int) -> None:
        number = 0
        while not self._is_over:
            body = b"%d-%d" % (task, number)
            number += 1
            try:
                result = await producer.send(
                    tandem.Message(TOPIC, body), sharding_key=f"key {task}" if task % 2 else ""
                )
            except tandem.ClientError as error:
                self.errors.append(error)
                continue
            if result.status is tandem.SendStatus.SEND_OK:
                self.places[body] = (result.queue.queue_id, result.queue_offset, result.msg_id)

    async def read(self) -> dict[bytes, list[tuple[int, int, str]]]:
        """All that is there: by message, its copies, in the order of their queues."""
        found: dict[bytes, list[tuple[int, int, str]]] = defaultdict(list)
        async with tandem.PullConsumer(self.cluster.name_servers, group="CG") as consumer:
            async for message in consumer.messages(TOPIC, until_end=True):
                place = (message.queue_id, message.queue_offset, message.msg_id)
                found[message.body].append(place)
        return found


def test_batches_outlive_a_kill_of_the_master_and_keep_their_order(tmp_path: Path) -> None:
    with running_fenced_cluster(tmp_path, settings=PATIENT_LEASE) as cluster:
        sent = Sent(cluster)
        anyio.run(sent.send_over_a_kill, backend="asyncio")
        found = anyio.run(sent.read, backend="asyncio")
    assert sent.errors == []
    assert len(sent.places) > TASKS
    for body, place in sent.places.items():
        assert place in found[body], body
    assert all(len({key for _, _, key in copies}) == 1 for copies in found.values())
    for task in range(1, TASKS, 2):
        own = [body for body in found if body.startswith(b"%d-" % task)]
        assert len({queue_id for body in own for queue_id, _, _ in found[body]}) == 1
        first = {body: min(offset for _, offset, _ in found[body]) for body in own}
        in_order = sorted(own, key=first.__getitem__)
        assert in_order == sorted(own, key=lambda body: int(body.partition(b"-")[2]))
