import socket

import msgspec
import trio

from tandem.drill.fault_proxy import FaultProxy
from tandem.drill.proxied_pair import PASS, FlowRule
from tandem.testing.faults import flows_of_link
from tandem.testing.network import DONE, MESSAGE_BYTES_MAX
from tandem.testing.network_process import serve
from tests.support.patience import PATIENCE_SECONDS


async def test_each_order_takes_the_place_of_the_one_before_and_the_end_is_the_end() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    proxy = FaultProxy([])
    test = trio.socket.from_stdlib_socket(ours)
    with trio.fail_after(PATIENCE_SECONDS), ours, theirs:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve, proxy, theirs)
            assert await test.recv(MESSAGE_BYTES_MAX) == DONE
            cut = FlowRule(stalled=True)
            for flows, rules in (
                (flows_of_link("a", "b", cut, direction="both"), [cut, cut]),
                (flows_of_link("b", "a", cut, direction="out"), [PASS, cut]),
                ([], [PASS, PASS]),
            ):
                await test.send(msgspec.json.encode(flows))
                assert await test.recv(MESSAGE_BYTES_MAX) == DONE
                there, back = proxy.rules.of("a", "b", 10911), proxy.rules.of("b", "a", 10911)
                assert [there, back] == rules
            test.close()
