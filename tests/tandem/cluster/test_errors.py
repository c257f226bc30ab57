import pickle
from pathlib import Path

import pytest

from tandem.cluster.errors import (
    CoordinatorAddressError,
    NodeCommandError,
    NoNodeNamedError,
    OrderRefusedError,
    SocketDirectoryError,
    WrongSystemError,
)
from tandem.cluster_file.errors import ClusterError


@pytest.mark.parametrize(
    "error",
    [
        NodeCommandError("a", "PAUSED", "killed"),
        NoNodeNamedError("kill"),
        CoordinatorAddressError("127.0.0.1", 9876, "in use"),
        WrongSystemError("darwin"),
        OrderRefusedError("no node is named 'z'", "UnknownNodeError"),
        SocketDirectoryError(Path("/tmp/tandem-0")),
    ],
)
def test_an_error_travels_between_processes_whole(error: ClusterError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))
