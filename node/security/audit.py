"""The audit trail: who has changed what, and who was refused, as lines of JSON.

    {"time":"2026-11-27T16:50:00.123Z","node":"broker-a-0","who":"user alice",
     "from":"10.0.0.9:4711","code":17,"request":"UPDATE_AND_CREATE_TOPIC","about":["Topic:Orders"],
     "fields":{"topic":"Orders",...},"result":"SUCCESS"}

A change is said when its answer is known, and with that. What clients do all the time, sending and
pulling and committing, is no change. Secrets and signatures are in no line. Of the refusals of one
address only the first in a while are lines; then one says how many there were.

It is written by a logger of its own, whose file the process of a node opens.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from node.remoting.connection import Connection
from node.security.access import Action
from node.security.request import Request
from tandem.audit_line import AuditLine, moment
from tandem.process_log import RepeatLimit
from tandem.wire.access_control import Right
from tandem.wire.acl_signature import ACCESS_KEY_FIELD, ACL_SIGNATURE_FIELD
from tandem.wire.errors import WireError
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_signature import CHALLENGE_FIELD, SIGNATURE_FIELD, TARGET_FIELD
from tandem.wire.response_code import ResponseCode
from tandem.wire.untrusted import UnreadableError, decode_json

AUDIT_LOGGER: Final = "tandem.audit"

_log = logging.getLogger(AUDIT_LOGGER)
_log.propagate = False
_log.addHandler(logging.NullHandler())

NAMES_MAX: Final = 8
"""Of a request with many topics or groups."""

TEXT_MAX: Final = 256
"""Characters of a name or a field."""

BODY_MAX: Final = 2_048
"""Characters of a body that says what is ordered."""

FIELDS_MAX: Final = 24

_NEVER: Final = frozenset(
    {
        *(ACL_SIGNATURE_FIELD, SIGNATURE_FIELD, CHALLENGE_FIELD, TARGET_FIELD, "SecurityToken"),
        *("value", "properties", "i", "password"),
    }
)
"""Fields that are left out: what is good as a proof, and what is content. A value that is kept at a
name server may be anything, also a secret."""

_WITH_BODY: Final = frozenset(
    {
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.FENCED_COMMAND,
        RequestCode.AUTH_CREATE_ACL,
        RequestCode.AUTH_UPDATE_ACL,
    }
)
"""Requests whose body says what they order, and has no secret."""

_OF_USERS: Final = frozenset({RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_UPDATE_USER})

_SHOWN_OF_USERS: Final = ("username", "userType", "userStatus", "quota")

_CHANGING: Final = frozenset({Right.CREATE, Right.UPDATE, Right.DELETE})

_ALL_THE_TIME: Final = frozenset(
    {RequestCode.REGISTER_BROKER, RequestCode.UNREGISTER_BROKER, RequestCode.BROKER_HEARTBEAT}
)
"""What nodes and brokers say of themselves every few seconds."""


def is_change(request: Request) -> bool:
    """Whether a request changes something that somebody may ask about later."""
    if request.code in _ALL_THE_TIME:
        return False
    if request.access[1] is Action.ORDER:
        return True
    return any(_CHANGING.issuperset(touch.rights) and touch.rights for touch in request.touches)


class Audit:
    """The trail of one node."""

    def __init__(
        self, node: str, wall_clock_ms: Callable[[], int], clock: Callable[[], float]
    ) -> None:
        """Write as `node`; `clock` in seconds bounds how often the same is written."""
        self._node = node
        self._wall_clock_ms = wall_clock_ms
        self._clock = clock
        self._limit = RepeatLimit()

    def begun(
        self,
        request: Request,
        who: str,
        connection: Connection,
        command: RemotingCommand,
        fields: Mapping[str, str],
    ) -> Callable[[int, str], None]:
        """Note a change that is asked for; say what came of it with what is returned."""
        about, shown, body = _about(request, command, fields), _shown(fields), _body(command)

        def ended(code: int, remark: str) -> None:
            self._write(
                who,
                connection,
                command,
                _name_of(code),
                remark,
                about=about,
                fields=shown,
                body=body,
            )

        return ended

    def refused(self, who: str, connection: Connection, command: RemotingCommand, why: str) -> None:
        """A request was refused."""
        now = self._clock()
        for key, count in self._limit.ended(now):
            self._left_out(key, count)
        # Whom a stranger says to be, and what they ask, are as many as they like.
        if self._limit.admits(connection.peer.ip, now):
            try:
                shown = _shown(command.ext_fields())
            except WireError:
                shown = {}
            self._write(
                who, connection, command, _name_of(ResponseCode.NO_PERMISSION), why, fields=shown
            )

    def over_bound(
        self, who: str, connection: Connection, command: RemotingCommand, why: str, count: int
    ) -> None:
        """A user is over a bound; `count` requests were refused since the last such line."""
        result = _name_of(ResponseCode.SYSTEM_BUSY)
        self._write(who, connection, command, result, why, left_out=count - 1)

    def _left_out(self, key: object, count: int) -> None:
        line = AuditLine(
            time=self._time(),
            node=self._node,
            who="whoever is there",
            from_=str(key),
            code=0,
            request="several",
            result=_name_of(ResponseCode.NO_PERMISSION),
            left_out=count,
        )
        _log.info("%s", line.text)

    def _write(
        self,
        who: str,
        connection: Connection,
        command: RemotingCommand,
        result: str,
        why: str,
        **more: Any,  # noqa: ANN401 - of AuditLine
    ) -> None:
        line = AuditLine(
            time=self._time(),
            node=self._node,
            who=who[:TEXT_MAX],
            from_=str(connection.peer),
            code=command.code,
            request=_request_name(command.code),
            result=result,
            why=why[:BODY_MAX],
            **more,
        )
        _log.info("%s", line.text)

    def _time(self) -> str:
        return moment(self._wall_clock_ms())


def _about(request: Request, command: RemotingCommand, fields: Mapping[str, str]) -> list[str]:
    found: list[str] = []
    for touch in request.touches:
        try:
            names = list(touch.names(command, fields))
        except WireError:
            continue
        found += [f"{touch.kind.value}:{name[:TEXT_MAX]}" for name in names[:NAMES_MAX]]
        if len(names) > NAMES_MAX:
            found.append(f"and {len(names) - NAMES_MAX} more")
    return found


def _shown(fields: Mapping[str, str]) -> dict[str, str]:
    shown = [(name, value) for name, value in fields.items() if name not in _NEVER]
    return {name[:TEXT_MAX]: value[:TEXT_MAX] for name, value in shown[:FIELDS_MAX]}


def _body(command: RemotingCommand) -> str | None:
    if command.code in _WITH_BODY:
        return str(command.body[:BODY_MAX], "utf-8", "replace")
    if command.code not in _OF_USERS:
        return None
    try:
        given = decode_json(command.body, dict[str, Any])
    except UnreadableError:
        return None
    # What is known and no more: a secret may be under a name that is misspelt.
    said: dict[str, Any] = {name: given[name] for name in _SHOWN_OF_USERS if name in given}
    if given.keys() - said.keys():
        said["secret"] = "given"
    return str(msgspec.json.encode(said), "utf-8")[:BODY_MAX]


def _request_name(code: int) -> str:
    try:
        return RequestCode(code).name
    except ValueError:
        return str(code)


def _name_of(code: int) -> str:
    try:
        return ResponseCode(code).name
    except ValueError:
        return str(code)


def claimed_by(command: RemotingCommand) -> str | None:
    """Whom a request says that it is of; None if it does not say, or cannot be read."""
    try:
        return command.ext_fields().get(ACCESS_KEY_FIELD)
    except WireError:
        return None
