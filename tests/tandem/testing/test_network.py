import socket

import msgspec
import pytest

from tandem.drill.proxied_pair import FlowRule
from tandem.testing.faults import Flow, flows_of_link
from tandem.testing.network import DONE, MESSAGE_BYTES_MAX, NetworkControl, NetworkGoneError


def test_a_change_is_sent_whole_and_waited_for() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        control = NetworkControl(ours)
        theirs.send(DONE)
        control.wait_ready()
        flows = flows_of_link("a", "b", FlowRule(stalled=True), direction="both")
        theirs.send(DONE)
        control.change(flows)
        assert msgspec.json.decode(theirs.recv(MESSAGE_BYTES_MAX), type=list[Flow]) == flows


def test_a_network_that_is_gone_is_reported() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        control = NetworkControl(ours)
        theirs.close()
        with pytest.raises(NetworkGoneError, match=r"network\.log"):
            control.wait_ready()
        with pytest.raises(NetworkGoneError) as caught:
            control.change([])
        assert isinstance(caught.value.__cause__, BrokenPipeError)
