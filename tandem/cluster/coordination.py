"""A local cluster's part in fenced groups: the coordinator it serves, and the leases of its dead.

Three things, for the groups of a cluster file that are fenced, and nothing for the others:

- It serves the embedded coordinator, if the file asks for that one: in the supervisor and not in a
  node, so that killing a node does not take the elector with it. A life of it ends when its journal
  fails; then another begins here, from what is on the disk, and the nodes stay as they are. It is
  not worth a process of its own: nothing of the old life is kept but the words of its end.
- When a node's process has ended, it ends the lease of that process. Then its successor is elected
  at once and not when the lease runs out. A frozen node is not dead: it keeps its lease until that
  ends.
- It watches which node is master, for people to see.

All of that is convenience: no message is lost if this process does none of it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import trio

from tandem.cluster.errors import (
    CoordinatorAddressError,
    CoordinatorRunsError,
    CoordinatorStartError,
    CoordinatorStoppedError,
    NoCoordinatorError,
)
from tandem.cluster.owners import has_ended_here
from tandem.cluster_file.choices import CoordinatorKind, GroupKind
from tandem.cluster_file.errors import ClusterConfigError, ClusterError
from tandem.coordinator.client import EtcdClient, connect, embedded_password
from tandem.coordinator.interface import (
    CoordinatorError,
    CoordinatorRefusedError,
    CoordinatorUnavailableError,
)
from tandem.coordinator.journal import DiskFile, Journal
from tandem.coordinator.server import CoordinatorServer
from tandem.tls_files import FreshContext, TLSFileError
from tandem.wire.group_state import GroupKeys, MalformedGroupRecordError, decode_leader

if TYPE_CHECKING:
    from tandem.cluster.spec import ClusterSpec, NodeSpec

_log = logging.getLogger(__name__)

RELEASE_SECONDS_MAX: Final = 2.0
"""How long ending the lease of a dead node may take. Then it ends by itself, a little later."""

RESTART_SECONDS: Final = 1.0
"""How long after its end the coordinator is started again, and how often that is tried."""

FOLLOW_RETRY_SECONDS: Final = 0.5
FOLLOW_READ_SECONDS: Final = 5.0
"""How often the master is read, watched or not."""


class Coordination:
    """The coordinator of one cluster, as its supervisor deals with it.

    Invariant: `_server` is set exactly while an embedded coordinator answers, `_stopped` exactly
    while there is to be none.
    """

    def __init__(self, spec: ClusterSpec) -> None:
        self._spec = spec
        self._groups = [
            name for name, group in spec.groups.items() if group.kind is GroupKind.FENCED
        ]
        is_embedded = spec.coordinator.kind is CoordinatorKind.EMBEDDED
        self._is_embedded = bool(self._groups) and is_embedded
        self._server: CoordinatorServer | None = None
        self._serving = trio.CancelScope()
        self._stopped = trio.Event()
        self._stopped.set()
        self._following = trio.CancelScope()
        self._client: EtcdClient | None = None
        self._masters: dict[str, str] = {}
        self._has_news = trio.Event()
        self._follow_trouble = ""
        self._start_trouble = ""
        self.last_end = ""
        """Why the embedded coordinator has ended by itself the last time; empty if it never has."""
        self._is_refused = False

    @property
    def is_open(self) -> bool:
        """Whether `open` was done."""
        return self._client is not None

    @property
    def trouble(self) -> str:
        """Why it is not known who is master, or nothing can be changed; empty if all is well."""
        own = self._server.trouble if self._server is not None else self._start_trouble
        return own or self._follow_trouble

    async def open(self, nursery: trio.Nursery) -> None:
        """Serve the coordinator if that is our part, and follow the masters. `nursery`: till when.

        Raises:
            CoordinatorStartError: The embedded one cannot be served.
            ClusterConfigError: The secret, or a file that etcd's settings name, cannot be used.
        """
        if not self._groups:
            return
        try:
            client = connect(self._spec.coordinator, secret=self._spec.read_secret())
        except CoordinatorRefusedError as error:
            raise ClusterConfigError(str(error)) from error
        # Before the first await: a call that comes meanwhile finds it open.
        self._client = client
        if self._is_embedded:
            try:
                await self.start(nursery)
            except ClusterError:
                self._client = None
                raise
        nursery.start_soon(self._follow_all, client)

    async def close(self) -> None:
        """Stop what `open` has started; the coordinator last."""
        self._following.cancel()
        if not self._stopped.is_set():
            await self.stop()

    async def start(self, nursery: trio.Nursery) -> None:
        """Serve the embedded coordinator, from its journal.

        Raises:
            CoordinatorStartError: It is served already, or cannot be; the text says why.
        """
        self._check_embedded()
        if not self._stopped.is_set():
            raise CoordinatorRunsError("the coordinator runs already")
        # Before the first await: nobody else starts it meanwhile.
        self._stopped, self._serving = trio.Event(), trio.CancelScope()
        try:
            server = await self._listening()
        except BaseException:
            self._stopped.set()
            raise
        self._server = server
        nursery.start_soon(self._serve, server)

    async def stop(self) -> None:
        """End the embedded coordinator, as if its machine were lost; `start` brings it back."""
        self._check_embedded()
        if self._stopped.is_set():
            raise CoordinatorStoppedError("the coordinator does not run")
        self._serving.cancel()
        await self._stopped.wait()

    def pause(self) -> None:
        """Let it accept connections and answer nothing, as if it were frozen."""
        self._running().pause()

    def resume(self) -> None:
        """Let it go on."""
        self._running().resume()

    def client(self) -> EtcdClient:
        """Return a client for the caller to use and to close."""
        if not self._groups:
            raise NoCoordinatorError("no group of this cluster is fenced: there is no coordinator")
        return connect(self._spec.coordinator, secret=self._spec.read_secret())

    async def release(self, node: NodeSpec) -> None:
        """End the lease of a process of this node that has ended here.

        That of any other is left alone: the node may run by itself, here or elsewhere. Also if
        the coordinator does not answer in time, the lease will run out.
        """
        if self._client is None or node.group not in self._groups:
            return
        key = GroupKeys(self._spec.name, node.group).node(node.name)
        with trio.move_on_after(RELEASE_SECONDS_MAX):
            try:
                record = (await self._client.read(key)).values.get(key)
                # In this order, see `owners`: first the record, then whether its process has ended.
                if record is not None and record.lease_id and has_ended_here(record.value, node):
                    await self._client.revoke(record.lease_id)
            except CoordinatorError:
                # It is out of reach or refuses: the lease will run out.
                return

    def role(self, node: NodeSpec, *, lives: bool) -> str:
        """What a node is at the moment, as far as that is known here."""
        master = self._masters.get(node.group)
        if node.group not in self._groups or not master or not lives:
            return node.role
        return "MASTER" if master == node.name else "FOLLOWER"

    async def wait_masters(self, seconds_max: float) -> None:
        """Wait until every fenced group has a master, but no longer than that.

        Nor longer than until the coordinator has refused: that takes a person.
        """
        with trio.move_on_after(seconds_max):
            while len(self._masters) < len(self._groups) and not self._is_refused:
                await self._has_news.wait()

    # --- inside --------------------------------------------------------------------------------

    def _check_embedded(self) -> None:
        if not self._is_embedded:
            raise NoCoordinatorError(
                "this cluster serves no coordinator of its own: no group is fenced, or it is etcd"
            )

    def _running(self) -> CoordinatorServer:
        self._check_embedded()
        if self._server is None:
            raise CoordinatorStoppedError("the coordinator does not run")
        return self._server

    async def _listening(self) -> CoordinatorServer:
        """A coordinator that has read its journal and listens."""
        settings = self._spec.coordinator
        try:
            password = embedded_password(self._spec.read_secret())
            tls = self._spec.coordinator_tls
            server = CoordinatorServer(
                Journal(self._journal_file()),
                password=password,
                tls=None if tls is None else FreshContext(tls, tls.server_context),
                takes_clear=self._spec.takes_clear,
            )
            await server.listen(settings.address, settings.port)
        except OSError as error:
            address = settings.address, settings.port
            raise CoordinatorAddressError(*address, str(error)) from error
        except (CoordinatorError, TLSFileError) as error:
            raise CoordinatorStartError(str(error)) from error
        return server

    def _journal_file(self) -> DiskFile:
        directory = self._spec.coordinator_directory
        try:
            return DiskFile(directory)
        except OSError as error:
            raise CoordinatorStartError(
                f"the coordinator's journal in {directory} cannot be opened: {error.strerror};"
                " check the disk and who may write to it"
            ) from error

    async def _serve(self, server: CoordinatorServer) -> None:
        """Have a coordinator until it is stopped: one life after the other."""
        try:
            with self._serving:
                while True:
                    await server.serve()
                    self._server, self.last_end = None, server.failure
                    _log.critical("the coordinator has ended: %s", server.failure)
                    server = self._server = await self._next_life()
        finally:
            self._server = None
            self._start_trouble = ""
            self._stopped.set()

    async def _next_life(self) -> CoordinatorServer:
        self._start_trouble = self.last_end
        while True:
            await trio.sleep(RESTART_SECONDS)
            try:
                server = await self._listening()
            except ClusterError as error:
                if str(error) != self._start_trouble:
                    _log.error("the coordinator cannot be started again yet: %s", error)
                self._start_trouble = str(error)
            else:
                _log.warning("the coordinator was started again")
                self._start_trouble = ""
                return server

    async def _follow_all(self, client: EtcdClient) -> None:
        with self._following:
            async with trio.open_nursery() as nursery:
                for group in self._groups:
                    nursery.start_soon(self._follow, client, group)
        with trio.CancelScope(shield=True):
            await client.aclose()

    async def _follow(self, client: EtcdClient, group: str) -> None:
        key = GroupKeys(self._spec.name, group).leader
        while True:
            try:
                await self._follow_until_broken(client, group, key)
            except CoordinatorError as error:
                self._note_trouble(group, error)
                await trio.sleep(FOLLOW_RETRY_SECONDS)

    def _note_trouble(self, group: str, error: CoordinatorError) -> None:
        self._masters.pop(group, None)
        self._follow_trouble = str(error)
        self._is_refused = isinstance(error, CoordinatorRefusedError)
        self._tell_news()

    async def _follow_until_broken(self, client: EtcdClient, group: str, key: str) -> None:
        snapshot = await client.read(key)
        record = snapshot.values.get(key)
        self._note(group, key, record.value if record else None)
        async with client.watch(key, snapshot.revision + 1) as batches:
            with trio.move_on_after(FOLLOW_READ_SECONDS):
                async for events in batches:
                    for event in events:
                        if event.key != key:
                            continue  # a key of somebody else's that only begins like it
                        self._note(group, key, event.value.value if event.value else None)

    def _note(self, group: str, key: str, record: bytes | None) -> None:
        self._masters.pop(group, None)
        if record is not None:
            try:
                self._masters[group] = decode_leader(record, key).node
            except MalformedGroupRecordError as error:
                raise CoordinatorUnavailableError(str(error)) from error
        self._follow_trouble, self._is_refused = "", False
        self._tell_news()

    def _tell_news(self) -> None:
        self._has_news.set()
        self._has_news = trio.Event()
