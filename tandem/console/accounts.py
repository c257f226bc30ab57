"""Who asks the nodes: one client for each user who is logged in, with that user's own keys.

All sessions of a user share it, and what was asked last: a snapshot of the cluster, the list of
groups. It lives as long as one of them.
"""

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import msgspec
import trio

from tandem.client import Admin
from tandem.client.async_shell import StreamOpener
from tandem.client.errors import BrokerError, ClientError
from tandem.console.cluster_errors import api_error, forbidden, is_refusal, no_answer
from tandem.console.errors import APIError
from tandem.console.feed import History, Snapshot
from tandem.console.shared_answer import SharedAnswer
from tandem.console.target import Target
from tandem.views.classic_nodes import ClassicNode, classic_nodes
from tandem.views.cluster_look import ClusterLook, fenced_groups, look, members_of
from tandem.views.discovery import Discovery
from tandem.views.fenced_group import ANSWER_SECONDS_MAX, FencedGroup, RecordStore
from tandem.views.group_view import Member

if TYPE_CHECKING:
    from tandem.client.admin_results import GroupSummary

LOOK_SECONDS: Final = 1.0
GROUPS_SECONDS: Final = 2.0
DISCOVERY_SECONDS: Final = 10.0

NOT_ASKED: Final = "not asked: the console has no cluster file"


class Surroundings:
    """What all accounts have in common."""

    def __init__(
        self,
        target: Target,
        coordinator: RecordStore | str,
        wall_ms: Callable[[], int],
        open_stream: StreamOpener | None = None,
    ) -> None:
        """`coordinator`: text in place of one says why it cannot be asked."""
        self.target = target
        self.coordinator = coordinator
        self.wall_ms = wall_ms
        self.open_stream = open_stream
        self.history = History()
        self.discovery = Discovery()
        self.discovered_at = -float("inf")

    @property
    def cluster(self) -> str:
        """The name of the cluster; empty if it is not known yet."""
        return self.target.spec.name if self.target.spec else self.discovery.cluster

    def classic(self) -> list[ClassicNode]:
        """The nodes of classic groups."""
        if self.target.spec:
            return list(classic_nodes(self.target.spec))
        return list(self.discovery.classic.values())

    def fenced(self) -> dict[str, list[Member]]:
        """The members of each fenced group."""
        if (spec := self.target.spec) is not None:
            return {name: members_of(spec, name) for name in fenced_groups(spec)}
        return self.discovery.fenced

    def addresses(self) -> dict[str, str]:
        """Where each node answers clients, by its name."""
        found = {each.name: each.client_address for each in self.classic()}
        for members in self.fenced().values():
            found |= {each.name: each.address for each in members}
        return found

    def places(self) -> set[str]:
        """Where anybody may answer: also nodes of which no more is known."""
        return {*self.addresses().values(), *self.discovery.addresses}


class Account:
    """One user's client. `admin` is there while it is open.

    Attributes:
        life: Tells it from other accounts, in ids of events.
        logins_count: How many logins and requests share it.
    """

    def __init__(self, user: str, secret: str, around: Surroundings) -> None:
        self.user = user
        self.key = user, secret
        self.access = around.target.access_of(user, secret)
        self.cluster: SharedAnswer[Snapshot | APIError] = SharedAnswer(self._look, LOOK_SECONDS)
        self.groups: SharedAnswer[list[GroupSummary]] = SharedAnswer(self._groups, GROUPS_SECONDS)
        self.logins_count = 0
        self.life = secrets.token_hex(4)
        self.opened = trio.Event()
        self.around = around
        self._over = trio.Event()
        self._was_allowed = False
        self._admin: Admin | None = None

    @property
    def admin(self) -> Admin:
        """The client of this user."""
        assert self._admin is not None, "it is open"
        return self._admin

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Be open until `end`."""
        async with Admin(self.access, open_stream=self.around.open_stream) as admin:
            self._admin = admin
            self.opened.set()
            task_status.started()
            await self._over.wait()

    def end(self) -> None:
        """Close it."""
        self._over.set()

    async def check_keys(self) -> bool:
        """Whether the nodes know this user by these keys.

        Raises:
            ClientError: none can be asked.
        """
        try:
            await self.admin.cluster_info()
        except BrokerError as error:
            if is_refusal(error):
                return False
            raise
        return True

    async def check_cluster(self) -> None:
        """Return if this user may look at the cluster, or might when a node was asked last.

        Raises:
            APIError: a node says no, or none answers and none ever said yes.
        """
        await self._is_allowed()

    async def discover(self) -> None:
        """Find the nodes, where no cluster file says which there are.

        Raises:
            ClientError: no name server answers, and none did before.
        """
        around = self.around
        # Who may not see the nodes finds none, and the next one may find them.
        is_old = trio.current_time() >= around.discovered_at + DISCOVERY_SECONDS
        is_due = is_old or not around.addresses()
        if around.target.spec is None and is_due:
            try:
                await around.discovery.look(self.admin)
            except ClientError:
                if not around.addresses():
                    raise
            around.discovered_at = trio.current_time()

    async def _is_allowed(self) -> bool:
        """Whether a node says so; False if none says anything now, but one has said so before."""
        await self.discover()
        if not self.around.target.has_users:
            return True
        allowed: list[bool] = []
        refusals: list[BrokerError] = []
        with trio.move_on_after(ANSWER_SECONDS_MAX):
            async with trio.open_nursery() as nursery:

                async def ask(address: str) -> None:
                    try:
                        await self.admin.ha_runtime_info(address)
                    except ClientError as error:
                        if not (isinstance(error, BrokerError) and is_refusal(error)):
                            return
                        refusals.append(error)
                    else:
                        allowed.append(True)
                    nursery.cancel_scope.cancel()

                for address in self.around.places():
                    nursery.start_soon(ask, address)
        if refusals and not allowed:
            self._was_allowed = False
            raise forbidden(refusals[0], self.user)
        self._was_allowed |= bool(allowed)
        if not self._was_allowed and self.around.places():
            words = f"no node says whether user {self.user} may see the cluster"
            raise no_answer(words, outcome_unknown=False)
        return bool(allowed)

    async def _look(self) -> Snapshot | APIError:
        around = self.around
        try:
            is_allowed = await self._is_allowed()
        except ClientError as error:
            return api_error(error, self.user, changes=False)
        except APIError as error:
            return error
        coordinator = around.coordinator
        if not is_allowed:
            coordinator = f"not asked: no node says that user {self.user} may see the cluster"
        groups = [
            FencedGroup(around.cluster, name, members, self.admin, coordinator)
            for name, members in around.fenced().items()
        ]
        seen = await look(around.classic(), self.admin, groups)
        if around.target.spec is None:
            # That there is no file to find it by is no fault of the cluster.
            known = [msgspec.structs.replace(each, coordinator_trouble="") for each in seen.groups]
            seen = ClusterLook(seen.classic_nodes, known)
        return around.history.snapshot(seen, around.cluster, around.wall_ms())

    async def _groups(self) -> "list[GroupSummary]":
        return await self.admin.consumer_groups(of_system=True)


class Accounts:
    """All that are open. They run in `nursery`."""

    def __init__(self, around: Surroundings, nursery: trio.Nursery) -> None:
        self.around = around
        self._nursery = nursery
        self._accounts: dict[tuple[str, str], Account] = {}

    async def enter(self, user: str, secret: str) -> Account:
        """Return the account of these keys, opened; `leave` has to follow."""
        account = self._accounts.get((user, secret))
        is_new = account is None
        if account is None:
            account = Account(user, secret, self.around)
            self._accounts[account.key] = account
        account.logins_count += 1
        try:
            if is_new:
                await self._nursery.start(account.run)
            await account.opened.wait()
        except BaseException:
            self.leave(account)
            raise
        return account

    @contextmanager
    def using(self, account: Account) -> Iterator[None]:
        """Keep an account open for a request, also if its last session ends meanwhile."""
        account.logins_count += 1
        try:
            yield
        finally:
            self.leave(account)

    def leave(self, account: Account) -> None:
        """Say that one login or use is over; the last one closes the account."""
        account.logins_count -= 1
        if not account.logins_count:
            self._accounts.pop(account.key, None)
            account.end()
