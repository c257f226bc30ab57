"""Who a client says it is: RocketMQ's access key and secret key."""

from functools import lru_cache
from typing import Self

import msgspec

from tandem.wire.acl_signature import ACCESS_KEY_FIELD, ACL_SIGNATURE_FIELD, AclKey
from tandem.wire.errors import ArgumentError
from tandem.wire.remoting_command import RemotingCommand, text_fields
from tandem.wire.request_signature import SIGNATURE_FIELD


@lru_cache(maxsize=64)
def _key_of(secret_key: str) -> AclKey:
    return AclKey(secret_key)


class Credentials(msgspec.Struct, frozen=True):
    """Signs every request of a client, as RocketMQ's clients do that have such keys.

    Source: RocketMQ 5.3.3, AclClientRPCHook.
    """

    access_key: str
    secret_key: str

    def __repr__(self) -> str:
        return f"Credentials({self.access_key!r}, '***')"

    @classmethod
    def of(cls, access_key: str, secret_key: str) -> Self | None:
        """Return them, None if both are empty.

        Raises:
            ArgumentError: only one of them is given.
        """
        if bool(access_key) != bool(secret_key):
            given, missing = "access_key", "secret_key"
            if secret_key:
                given, missing = missing, given
            raise ArgumentError(
                f"{given} is given and {missing} is not; give both or none", missing
            )
        return cls(access_key, secret_key) if access_key else None

    def signed(self, command: RemotingCommand) -> RemotingCommand:
        """Return the request with who sends it, and the signature."""
        fields = text_fields(command)
        if SIGNATURE_FIELD in fields:
            return command  # by a node or an operator, with a number: more fields would spoil that
        said = {**fields, ACCESS_KEY_FIELD: self.access_key}
        said[ACL_SIGNATURE_FIELD] = _key_of(self.secret_key).sign(said, command.body)
        return msgspec.structs.replace(command, ext=said)
