"""What can go wrong with the cluster of a test."""

from tandem.cluster_file.errors import ClusterError


class NoAddressesError(ClusterError):
    """No addresses are free for one more cluster."""


class FaultNotPossibleError(ClusterError):
    """The cluster was started without what this fault needs; the text says how to start it."""
