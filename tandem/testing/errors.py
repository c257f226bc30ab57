"""What can go wrong with the cluster of a test."""

import enum

from tandem.cluster_file.errors import ClusterError


class NoAddressesError(ClusterError):
    """No addresses are free for one more cluster."""


class FaultNeed(enum.Enum):
    """What a fault needs and does not have."""

    OTHER_NODE = enum.auto()
    """A link is between two nodes."""
    PROXIES = enum.auto()
    DISKS = enum.auto()


class FaultNotPossibleError(ClusterError):
    """The cluster was started without what this fault needs; the text says how to start it.

    `need` is what that is.
    """

    def __init__(self, text: str, need: FaultNeed) -> None:
        super().__init__(text, need)
        self.need = need

    def __str__(self) -> str:
        return str(self.args[0])
