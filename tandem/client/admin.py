"""Topics, groups, messages and what a cluster looks like: `Admin`, and `BlockingAdmin`.

Each operation is a flow, and a line here. Every one raises `ClientError`: `RouteNotFoundError` if
no name server or master can be asked, `BrokerError` if a broker refuses, `ConnectionLostError` or
`RequestTimeoutError`.
"""

import time

from tandem.client.admin_flow import Administration
from tandem.client.async_shell import AsyncShell, StreamOpener
from tandem.client.blocking_shell import BlockingShell
from tandem.client.cluster_access import Cluster, ClusterAccess
from tandem.client.event_loop import LoopClock
from tandem.client.faces import AsyncFace, BlockingFace, operation
from tandem.client.group_admin import GroupAdministration
from tandem.client.life_admin import LifeAdministration
from tandem.client.message_admin import MessageAdministration
from tandem.client.plain_socket import SocketOpener, open_socket
from tandem.client.topic_admin import TopicAdministration
from tandem.client.trace_admin import TraceAdministration
from tandem.client.user_admin import UserAdministration


class AdminOperations:
    """What an administrator can ask and order."""

    create_topic = operation(Administration.create_topic)
    began_at = operation(Administration.began_at)
    cluster_info = operation(Administration.cluster_info)
    topics = operation(TopicAdministration.names)
    describe_topic = operation(TopicAdministration.describe)
    topic_queues = operation(TopicAdministration.queues)
    alter_topic = operation(TopicAdministration.alter)
    delete_topic = operation(TopicAdministration.delete)
    consumer_groups = operation(GroupAdministration.summaries)
    describe_group = operation(GroupAdministration.describe)
    plan_reset = operation(GroupAdministration.plan_reset)
    apply_reset = operation(GroupAdministration.apply_reset)
    delete_group = operation(GroupAdministration.delete)
    message = operation(MessageAdministration.by_id)
    messages_by_key = operation(MessageAdministration.by_key)
    messages_by_time = operation(MessageAdministration.by_time)
    messages_of = operation(MessageAdministration.all_of)
    page_by_time = operation(MessageAdministration.page_by_time)
    page_of_queue = operation(MessageAdministration.page_of_queue)
    trace_message = operation(MessageAdministration.trace)
    client_traces = operation(TraceAdministration.client_traces)
    why = operation(LifeAdministration.why)
    topic_route = operation(Administration.topic_route)
    ha_runtime_info = operation(Administration.ha_runtime_info)
    fenced_status = operation(Administration.fenced_status)
    fenced_command = operation(Administration.fenced_command)
    broker_config = operation(Administration.broker_config)
    update_broker_config = operation(Administration.update_broker_config)
    users = operation(UserAdministration.users)
    user = operation(UserAdministration.user)
    create_user = operation(UserAdministration.create)
    alter_user = operation(UserAdministration.alter)
    delete_user = operation(UserAdministration.delete)
    grant = operation(UserAdministration.grant)
    revoke = operation(UserAdministration.revoke)
    min_offset = operation(Administration.min_offset)
    max_offset = operation(Administration.max_offset)


class Admin(AsyncFace, AdminOperations):
    """Asks name servers and brokers; use it as an async context manager.

    Orders (`fenced_command`, topics of the system) are taken only from those who give the secret of
    the cluster, and under the address that the cluster file has. Both are in its spec:

        spec = tandem.cluster.read_spec(file)
        Admin(ClusterAccess(spec.name_servers, secret=spec.read_secret()))

    Args:
        cluster: the name servers, "host:port", or a `ClusterAccess` with keys or the secret.
        open_stream: opens connections; tests put another network here.
    """

    def __init__(self, cluster: Cluster, *, open_stream: StreamOpener | None = None) -> None:
        access = ClusterAccess.of(cluster)
        core = access.core(LoopClock())
        rules = Administration(core, access.secret)
        super().__init__(AsyncShell(core, open_stream), *rules.parts)


class BlockingAdmin(BlockingFace, AdminOperations):
    """The same for plain code. Use it as a context manager, from one thread."""

    def __init__(self, cluster: Cluster, *, opener: SocketOpener = open_socket) -> None:
        access = ClusterAccess.of(cluster)
        core = access.core(time.monotonic)
        rules = Administration(core, access.secret)
        super().__init__(BlockingShell(core, opener), *rules.parts)
