from unittest.mock import AsyncMock, patch

import pytest

from store.services.clean_service import CleanConsumeQueueService
from tandem.wire.request_code import RequestCode
from tests.node.doubles import Broker
from tests.node.handlers.inspected import looking_at, put
from tests.support.logged import logged

EXPIRED_QUEUES = RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE
UNUSED_TOPICS = RequestCode.CLEAN_UNUSED_TOPIC
EXPIRED_LOG = RequestCode.DELETE_EXPIRED_COMMITLOG


@pytest.mark.parametrize("code", [EXPIRED_QUEUES, UNUSED_TOPICS])
async def test_queues_are_cleaned_once_at_a_time(code: RequestCode) -> None:
    broker = Broker()
    client = looking_at(broker)
    assert client.call(code).code == client.call(code).code == 0
    assert len(broker.spawned) == 1
    with patch.object(CleanConsumeQueueService, "clean", AsyncMock()) as clean:
        await broker.spawned[0]()
    clean.assert_awaited_once()
    assert client.call(code).code == 0
    assert len(broker.spawned) == 2


async def test_a_disk_that_refuses_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker()
    client = looking_at(broker)
    client.call(EXPIRED_QUEUES)
    with patch.object(CleanConsumeQueueService, "clean", AsyncMock(side_effect=OSError("no"))):
        await broker.spawned[0]()
    assert [str(line[0]) for line in logged(caplog, "node.handlers.clean_up")] == ["no"]


@pytest.mark.parametrize("code", [EXPIRED_QUEUES, UNUSED_TOPICS])
async def test_a_queue_stays_with_its_numbers(code: RequestCode) -> None:
    """Otherwise this node would count from 0 again, and the others of its group would not."""
    broker = Broker(topics=())
    put(broker, 3)
    client = looking_at(broker)
    assert client.call(code).code == 0
    await broker.spawned[0]()
    assert broker.store.reads.max_offset_in_queue("T", 0) == 3


async def test_expired_files_of_the_log_go_whatever_the_hour() -> None:
    broker = Broker()
    with patch.object(broker.store.clean_service.commit_log, "delete_manually") as delete:
        assert looking_at(broker).call(EXPIRED_LOG).code == 0
    delete.assert_called_once_with()
