"""Ways to break what consumer groups and transactions are promised. See `engine.mutation`."""

from collections.abc import Callable
from typing import Any, Final

import node.handlers.consumer_offset
import store.messages.send_back
from node.handlers.end_transaction import EndTransactions
from node.handlers.lock_queues import LockQueues
from node.handlers.send_back import SendBack
from node.handlers.send_half import SendHalf
from node.handlers.send_message import SendMessage
from node.remoting.dispatcher import response_to
from node.tables import queue_locks
from node.tables.client_table import ClientTable
from node.tables.journal.journal_tables import JournalTables
from node.tables.plain_tables import PlainTables
from node.tables.queue_locks import QueueLocks
from store.delayed.earlier_deliveries import EarlierDeliveries
from store.messages.message_reads import MessageReads
from store.transaction.transactional_message_service import TransactionalMessageService
from store.transactions import Transactions
from tandem.wire.message import TRANSACTION_COMMIT_TYPE
from tests.sim.consumers.checker import Kind
from tests.sim.consumers.settings import CONSUMERS
from tests.sim.engine.faults import CLIENT_VERBS
from tests.sim.engine.mutation import Mutation
from tests.sim.engine.settings import Settings

Real = Callable[..., Any]


def _kills_nodes(settings: Settings) -> bool:
    return any(i.verb.startswith("kill") or i.verb == "power-off" for i in settings.plan)


def _vanish_clients(settings: Settings) -> bool:
    """One consumer for good."""
    gone = {i.arguments[0] for i in settings.plan if i.verb == "client-vanish"}
    return CONSUMERS[0] in gone - {
        i.arguments[0] for i in settings.plan if i.verb == "client-start"
    }


def _hurts_clients(settings: Settings) -> bool:
    return any(i.verb in CLIENT_VERBS for i in settings.plan)


def _never(_: Real) -> Real:
    return lambda *_: None


def _drops_what_comes_back(_: Real) -> Real:
    return lambda self, connection, command: response_to(command)


def _drops_dead_letters(real: Real) -> Real:
    def put_again(self: Any, connection: Any, command: Any, message: Any, *rest: Any) -> Any:  # noqa: ANN401
        if message.topic.startswith("%DLQ%"):
            return response_to(command)
        return real(self, connection, command, message, *rest)

    return put_again


def _locks_for_everybody(_: Real) -> Real:
    return lambda self, group, client_id, queues, now: list(queues)


def _locks_end_soon(_: Real) -> Real:
    return lambda lock, now: now - lock.last > 0.5


def _answers_at_once(_: Real) -> Real:
    def answer(tables: Any, connection: Any, command: Any, deadline: float) -> None:  # noqa: ANN401
        connection.respond(command, response_to(command))

    return answer


def _forgets_how_far(real: Real) -> Real:
    def commit(self: Any, group: str, topic: str, queue_id: int, offset: int) -> None:  # noqa: ANN401
        real(self, group, topic, queue_id, max(0, offset - 1))

    return commit


def _ends_nothing(_: Real) -> Real:
    return lambda self, connection, command: response_to(command)


def _commits_all(real: Real) -> Real:
    return lambda self, half, live, outcome, now_ms: real(
        self, half, live, TRANSACTION_COMMIT_TYPE, now_ms
    )


def _has_never_ended(_: Real) -> Real:
    return lambda self, live: False


def _reads_no_ops(_: Real) -> Real:
    def read_ops(self: Any) -> Any:  # noqa: ANN401
        self._op_read_offset = self._log.max_offset_in_queue("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0)
        yield from ()

    return read_ops


def _shows_halves(_: Real) -> Real:
    return lambda self, message: self._store.puts.put_message(message)


def _skips_a_message(real: Real) -> Real:
    def get_message(self, topic, queue_id, offset, *rest, **by):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN002, ANN003, ANN202
        skipped = offset + (offset == 3 and topic == "ledger")
        return real(self, topic, queue_id, skipped, *rest, **by)

    return get_message


def _never_delivered(_: Callable[..., Any]) -> Any:  # noqa: ANN401
    return lambda self, message, offset, due_ms: False


BOTH: Final = {
    "a message is given up one try too soon": Mutation(
        store.messages.send_back,
        "is_given_up",
        lambda real: lambda times, level, most: real(times + 1, level, most),
        frozenset({Kind.DEAD_TOO_EARLY}),
    ),
    "a message is given up one try too late": Mutation(
        store.messages.send_back,
        "is_given_up",
        lambda real: lambda times, level, most: real(times - 1, level, most),
        frozenset({Kind.TRIED_TOO_OFTEN}),
    ),
    "what comes back is answered and dropped": Mutation(
        SendBack, "handle", _drops_what_comes_back, frozenset({Kind.LOST})
    ),
    "dead letters are answered and dropped": Mutation(
        SendMessage, "put_again", _drops_dead_letters, frozenset({Kind.DEAD_MISSING})
    ),
    "every client that asks gets the lock": Mutation(
        QueueLocks, "lock", _locks_for_everybody, frozenset({Kind.TWO_HOLDERS}), _hurts_clients
    ),
    "locks end sooner than clients believe": Mutation(
        queue_locks, "_is_over", _locks_end_soon, frozenset({Kind.TWO_HOLDERS}), _hurts_clients
    ),
    "clients that have vanished keep their queues": Mutation(
        ClientTable,
        "expire",
        lambda _: lambda self, now: {},
        frozenset({Kind.LOST}),
        _vanish_clients,
    ),
    "a pull skips a message": Mutation(
        MessageReads,
        "get_message",
        _skips_a_message,
        frozenset({Kind.GAP, Kind.ODD}),
        also=Mutation(MessageReads, "run_units", _never),
    ),
    "an end is answered, and nothing ends": Mutation(
        EndTransactions, "handle", _ends_nothing, frozenset({Kind.COMMIT_LOST})
    ),
    "a rollback commits": Mutation(
        TransactionalMessageService, "_end", _commits_all, frozenset({Kind.ROLLED_BACK_SEEN})
    ),
    "a transaction ends as often as somebody ends it": Mutation(
        TransactionalMessageService,
        "_has_ended",
        _has_never_ended,
        frozenset({Kind.COMMITTED_TWICE}),
    ),
    "a new master does not read which transactions have ended": Mutation(
        TransactionalMessageService,
        "_read_ops",
        _reads_no_ops,
        frozenset({Kind.COMMITTED_TWICE}),
        _kills_nodes,
    ),
    "a half is put where it can be read": Mutation(
        SendHalf, "put", _shows_halves, frozenset({Kind.ROLLED_BACK_SEEN})
    ),
    "nobody is asked about a half, and none is given up": Mutation(
        Transactions, "check", lambda _: lambda self, end_round: True, frozenset({Kind.HALF_OPEN})
    ),
}
CLASSIC_MUTATIONS: Final = {
    **BOTH,
    "a commit is one message short": Mutation(
        PlainTables, "commit", _forgets_how_far, frozenset({Kind.OFFSET_WENT_BACK}), _hurts_clients
    ),
}
FENCED_MUTATIONS: Final = {
    **BOTH,
    "any node gives locks": Mutation(
        LockQueues, "_check_master", _never, frozenset({Kind.FALSE_GRANT}), _kills_nodes
    ),
    "commits are answered before they are confirmed": Mutation(
        node.handlers.consumer_offset,
        "answer_when_settled",
        _answers_at_once,
        frozenset({Kind.OFFSET_WENT_BACK}),
    ),
    "a new master does not look for what was delivered and not noted": Mutation(
        EarlierDeliveries, "take", _never_delivered, frozenset({Kind.DELIVERED_TWICE}), _kills_nodes
    ),
    "any node says where a group is": Mutation(
        JournalTables, "check_query", _never, frozenset({Kind.OFFSET_WENT_BACK}), _kills_nodes
    ),
}
