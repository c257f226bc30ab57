"""A broker, and what is asked of it about users."""

from typing import Final

import msgspec

from node.security.users import StoredUser
from node.tables.replicated_users import UsersPart
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.sealed_secret import unseal
from tandem.wire.secret_keys import Purpose, key_of
from tests.node.doubles import Broker, Client, FakeReplication, handlers_of, request_table

SECRET: Final = "a secret of alice"


class Users:
    """A broker, and what is asked of it about users."""

    def __init__(self) -> None:
        self.broker, self.replication = Broker(), FakeReplication()
        families = handlers_of(self.broker, self.replication)
        self.client = Client(request_table(families), self.broker.outbox)

    def ask(self, code: int, name: str | None = None, **body: str) -> RemotingCommand:
        ext = {} if name is None else {"username": name}
        return self.client.call(code, ext, msgspec.json.encode(body) if body else b"")

    def create(self, name: str = "alice", **body: str) -> RemotingCommand:
        return self.ask(
            RequestCode.AUTH_CREATE_USER, name, **{"username": name, "password": SECRET} | body
        )

    @property
    def stored(self) -> dict[str, StoredUser]:
        return self.broker.tables.as_confirmed(UsersPart).users

    def secret_of(self, name: str) -> str:
        key = key_of(self.broker.config.cluster.secret, Purpose.USERS)
        return unseal(key, name, self.stored[name].sealed)
