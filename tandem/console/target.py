"""Which cluster a console is for, and by whose keys it asks."""

import msgspec

from tandem.client.cluster_access import ClusterAccess
from tandem.cluster.spec import ClusterSpec
from tandem.cluster_file.cluster_config import ClusterConfig


class Target(msgspec.Struct, frozen=True):
    """A cluster.

    Attributes:
        access: Where it is, without anybody's keys.
        has_users: Whether it asks who sends a request, so that people log in with their own keys.
        spec: Its cluster file, if that is here.
        config: The same, with all settings.
    """

    access: ClusterAccess
    has_users: bool
    spec: ClusterSpec | None = None
    config: ClusterConfig | None = None

    def access_of(self, user: str, secret: str) -> ClusterAccess:
        """Return how a user asks; nobody in particular if both are empty."""
        return msgspec.structs.replace(self.access, access_key=user, secret_key=secret)


def anonymous(access: ClusterAccess) -> ClusterAccess:
    """Return the same without keys and secrets: nobody's rights are lent to who comes by HTTP."""
    return msgspec.structs.replace(
        access, access_key="", secret_key="", secret="", as_operator=False
    )
