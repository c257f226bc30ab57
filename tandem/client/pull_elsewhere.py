"""A message that is damaged at the node that was asked: another node may have it whole.

Logs of a group are copies of each other, so a message has the same number everywhere.
"""

import msgspec

from tandem.client.core import ClientCore
from tandem.client.errors import (
    BrokerError,
    ConnectionLostError,
    MessageDamagedError,
    RequestTimeoutError,
)
from tandem.client.flow import Flow
from tandem.client.name_servers import REQUEST_TIMEOUT_SECONDS
from tandem.client.pull_answer import Sql92, expression_type, passes_over, pull_result
from tandem.client.queue_flow import QueueBrokers
from tandem.client.results import MessageQueue, PullResult
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import PULL_FLAG_SUSPEND, PullMessageRequestHeader


def pull_elsewhere(
    core: ClientCore,
    brokers: QueueBrokers,
    queue: MessageQueue,
    ext: PullMessageRequestHeader,
    error: MessageDamagedError,
) -> Flow[tuple[PullResult, str]]:
    """Get from another node what the one that was asked has not whole.

    Raises:
        MessageDamagedError: `error`, if no other node has it.
    """
    now = msgspec.structs.replace(ext, sys_flag=ext.sys_flag & ~PULL_FLAG_SUSPEND)
    addresses = core.routes[queue.topic].addresses(queue.broker_name).values()
    tags = str(ext.subscription)
    if ext.expression_type == expression_type(Sql92("")):
        tags = Sql92(tags)
    for address in addresses:
        if address == error.address or brokers.is_to_be_avoided(address):
            continue
        try:
            answer = yield from brokers.call(
                queue, address, RequestCode.PULL_MESSAGE, now, REQUEST_TIMEOUT_SECONDS
            )
            result = pull_result(
                answer, address, queue.topic, queue.queue_id, tags, ext.queue_offset
            )
        except (ConnectionLostError, RequestTimeoutError, BrokerError):
            continue
        # Another node may lag, or have deleted what is damaged here.
        offset = ext.queue_offset
        if result.next_begin_offset > offset and not passes_over(result, tags, offset):
            return result, address
    raise error
