"""Requests that this node does not serve: refused in words, counted, and logged now and then.

The words name the thing and what to use in its place; they follow RocketMQ's own remark. A code is
logged once a minute at most: one client that asks for something again and again is one line.

Source: RocketMQ 5.3.3, NettyRemotingAbstract.processRequestCommand, for code and first words.
"""

from __future__ import annotations

import logging
from typing import Final

import trio

from node.errors import RequestError
from node.remoting.connection import Connection
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.response_code import ResponseCode

_log = logging.getLogger(__name__)

LOG_SECONDS: Final = 60.0
"""Between two lines about the same code."""

CODES_MAX: Final = 1_000
"""Counted apart; anybody may ask for any code. The rest is counted together, as `OTHERS`."""

OTHERS: Final = -1

_POP_ROLLBACK: Final = "there is no POP state in RocksDB to roll back: see docs/pop.md"
_CONTROLLER: Final = "this is no RocketMQ controller: a fenced group elects its master itself"
_CONTAINER: Final = "broker containers are not served: start one node for each broker"
_ACL: Final = "access lists of RocketMQ 4 are not kept here, those of 5.3 are: see docs/security.md"
_FILTER: Final = "filter servers are not served: filter by tags or by SQL92"
_ROCKSDB: Final = "there is no RocksDB here: queues and tables are files"
_COLD: Final = "cold data is not limited: reads are served from mapped files"
_LITE: Final = "lite topics are not served: send to and pop from an ordinary topic, see docs/pop.md"
_TIMERS: Final = "there is one engine of timers, the wheel of timer_wheel_enable"

WORDS: Final[dict[int, str]] = {
    200056: _POP_ROLLBACK,
    **dict.fromkeys((*range(1001, 1007), *range(1008, 1014)), _CONTROLLER),
    **dict.fromkeys((902, 903), _CONTAINER),
    **dict.fromkeys(range(50, 56), _ACL),
    **dict.fromkeys((301, 302), _FILTER),
    **dict.fromkeys((354, 355), _ROCKSDB),
    **dict.fromkeys(range(2001, 2005), _COLD),
    # Those of RocketMQ 5.5.
    **dict.fromkeys(range(200070, 200080), _LITE),
    5001: _TIMERS,
}
"""What is asked for, by code. A code that is served has no use for its words."""


class UnsupportedRequests:
    """What was asked for and is not served.

    Attributes:
        counts: How often, by request code.
    """

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self._logged: dict[int, float] = {}

    def refuse(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """Answer a request whose code has no handler.

        Raises:
            RequestError: always, with REQUEST_CODE_NOT_SUPPORTED.
        """
        code = command.code
        is_known = code in self.counts or len(self.counts) < CODES_MAX
        key = code if is_known else OTHERS
        self.counts[key] = self.counts.get(key, 0) + 1
        remark = f" request type {code} not supported"
        if words := WORDS.get(code):
            remark = f"{remark}: {words}"
        now = trio.current_time()
        if now >= self._logged.get(key, 0.0):
            self._logged[key] = now + LOG_SECONDS
            _log.info(
                "request%s, asked for by %s; %d times so far",
                remark.removeprefix(" request"),
                connection.peer,
                self.counts[key],
            )
        raise RequestError(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
