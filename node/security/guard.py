"""The one place where a request is attributed to somebody, and refused if they may not do it.

    request --> who is it? --+--> signed with a number: NODE
                             +--> signed by a tool: OPERATOR
                             +--> RocketMQ's, admitted: ADMITTED
                             +--> signed by a user, or with a user's certificate: what do they
                             |    ask for, what may they?
                             +--> else: STRANGER

`security.clients` of the cluster file says what is asked of those who give no orders:

    open            nothing. What anybody may use goes to its handler directly, and costs nothing
    authenticated   the signature of a user
    authorized      and a right to everything that the declaration of the request names

Signatures of nodes are described in `tandem.wire.request_signature`; the numbers they need are kept
with the connection, a few at most, and are unknown to strangers beforehand. Those of tools and
users are RocketMQ's, see `tandem.wire.acl_signature`, or seals, see `tandem.wire.frame_seal`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from functools import partial
from random import Random
from typing import Final, TypeVar

import trio

from node.errors import RequestError
from node.remoting.caller import ANYBODY
from node.remoting.connection import NOT_ANSWERED, Connection
from node.remoting.dispatcher import Answer, Handler
from node.security.access import (
    REMEDY,
    SEAL_REMEDY,
    TOOL_REMEDY,
    USER_REMEDY,
    Access,
    Action,
    Resource,
    Standing,
    needed,
)
from node.security.admission import REGISTRATIONS, Admission, NotAdmittedError
from node.security.audit import Audit, claimed_by, is_change
from node.security.quotas import Quotas
from node.security.request import ANY_USER, REQUESTS, Request, Touch, handler_table
from node.security.seals import Operator, Seals, Sender, SenderOf, Signer
from node.security.user_caller import CALLERS, Names, UserCaller
from node.security.users import User, Users, why_call_not_signed, why_not_signed
from store.machine.tell_once import TellOnce
from tandem.cluster_file.choices import ClientAccess
from tandem.cluster_file.cluster_config import NodeConfig
from tandem.wire.access_control import Kind, Right
from tandem.wire.acl_signature import ACCESS_KEY_FIELD, AclKey
from tandem.wire.call_signature import CallSignature, CallSignatureError, SignedCall
from tandem.wire.frame_seal import FrameSeal, Signatures
from tandem.wire.remoting_command import ONEWAY_FLAG, RemotingCommand, SerializeType
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import CreateTopicRequestHeader
from tandem.wire.request_signature import SIGNATURE_FIELD
from tandem.wire.response_code import ResponseCode
from tandem.wire.secret_keys import OPERATOR_ACCESS_KEY, Purpose, key_of, operator_secret_key

_log = logging.getLogger(__name__)

TakeT = TypeVar("TakeT")

WRONG_SIGNATURES_MAX: Final = 10
"""Of one connection within `WRONG_SIGNATURES_SECONDS`; more end it."""

WRONG_SIGNATURES_SECONDS: Final = 10.0

NAME_SHOWN_MAX: Final = 64
"""Of a name that a stranger gives, in characters."""


class Guard:
    """Asks of every request of one node who may send it.

    Raises, from guarded handlers:
        RequestError: NO_PERMISSION, with what is missing and what to do.

    Attributes:
        users: Who may sign.
        quotas: How much each of them may take.
    """

    def __init__(self, config: NodeConfig, random: Random, audit: Audit | None = None) -> None:
        """Guard a node.

        Args:
            config: Has the secret.
            random: Makes numbers that do not come again.
            audit: Hears of changes and refusals.
        """
        cluster = config.cluster
        self._audit = audit
        self.users = Users(key_of(cluster.secret, Purpose.USERS))
        self._clients = cluster.security.clients
        self.quotas = Quotas(cluster.security.user_quota, config.node.name, audit)
        self._operator = Operator(operator_secret_key(cluster.secret))
        self._operator_key = AclKey(operator_secret_key(cluster.secret))
        self._takes_all = cluster.security.signatures is Signatures.ANY
        self._seals = Seals(config, random)
        self._name = config.node.name
        self._admission = Admission(cluster)
        self._names = Names(
            cluster.cluster.name, frozenset({cluster.cluster.name, *cluster.groups})
        )
        self._told: TellOnce[str] = TellOnce()

    def guarded(self, *families: object) -> dict[int, Handler]:
        """Return what these objects handle, with the question before what not everybody may use.

        The guard's own requests are among them, for the sake of signatures.
        """
        return self.over(handler_table(self._seals, *families))

    def over(self, handlers: Mapping[int, Handler]) -> dict[int, Handler]:
        """Return these handlers with the question before each."""
        return {
            code: self._guarded(REQUESTS[code], self._audited(REQUESTS[code], handler))
            for code, handler in handlers.items()
        }

    def runs(
        self, take: TakeT | None, codes: Iterable[int], *, are_signed: bool = True
    ) -> TakeT | None:
        """Return what takes requests of these codes together, if everybody may send them.

        Where clients are not asked who they are, nobody is asked who sent a run. So it has no
        request with a field that the loops in C do not know: such a field may be a signature, and
        its request comes to `_guarded`. Elsewhere all of a run have the signature of one user, if
        `are_signed`; what takes it asks `sender_of`. A run of several connections is of nobody's.
        """
        if self._clients is not ClientAccess.OPEN and not are_signed:
            return None
        strangers = (needed(REQUESTS[code].access) is Standing.STRANGER for code in codes)
        return take if all(strangers) else None

    @property
    def sender_of(self) -> SenderOf | None:
        """Says who has signed what came together; None: nobody is asked."""
        return None if self._clients is ClientAccess.OPEN else self._sender_of

    def _sender_of(self, connection: Connection, name: str) -> Sender | None:
        """Return who signs as `name`, unless there is anything to be said about them."""
        key: AclKey | FrameSeal | None
        is_sealed = not name
        if is_sealed:
            name = "" if connection.signing is None else connection.signing.name
        elif not (self._takes_all or connection.has_tls):
            return None
        if name == OPERATOR_ACCESS_KEY:
            key = self._seals.ready(connection, self._operator) if is_sealed else self._operator_key
            return None if key is None else Sender(CALLERS[Standing.OPERATOR], key)
        user = self.users.find(name)
        if user is None or not user.is_enabled:
            return None
        caller = self._caller(connection, user)
        if not self.quotas.takes_runs(caller, connection):
            return None
        key = self._seals.ready(connection, user) if is_sealed else user.key
        return None if key is None else Sender(caller, key)

    def _audited(self, request: Request, handler: Handler) -> Handler:
        """Return a handler whose changes are in the audit trail, if it makes any."""
        if self._audit is None or not is_change(request):
            return handler
        return partial(self._handle_audited, self._audit, request, handler)

    def _handle_audited(
        self,
        audit: Audit,
        request: Request,
        handler: Handler,
        connection: Connection,
        command: RemotingCommand,
    ) -> Answer | None:
        who = connection.caller.in_words
        if self._clients is ClientAccess.OPEN and needed(request.access) is Standing.STRANGER:
            who = ANYBODY.in_words  # nobody was asked
        fields = command.ext_fields()
        ended = audit.begun(request, who, connection, command, fields)
        if other := connection.when_answered.pop(command.opaque, None):
            # A client has numbered two requests alike. Nobody hides a change behind another one.
            other(NOT_ANSWERED, "another request of the same number came before the answer")
        connection.when_answered[command.opaque] = ended
        is_over = True
        code, remark = int(ResponseCode.SYSTEM_ERROR), ""
        try:
            answer = handler(connection, command)
            is_over = answer is not None or bool(command.flag & ONEWAY_FLAG)
            if isinstance(answer, RemotingCommand):
                code, remark = answer.code, answer.remark or ""
        except RequestError as error:
            code, remark = error.code, error.remark
            raise
        except Exception as error:
            remark = f"{type(error).__name__}: {error}"
            raise
        finally:
            if is_over and connection.when_answered.pop(command.opaque, None) is not None:
                ended(code, remark)
        return answer

    def _guarded(self, request: Request, handler: Handler) -> Handler:
        if request.code == RequestCode.NODE_CHALLENGE:
            return handler
        if request.code == RequestCode.SIGN_IN:
            return partial(self._sign_in, handler)
        if self._clients is not ClientAccess.OPEN:
            return partial(self._ask_user, request, handler)
        if request.access == (Resource.TOPICS, Action.WRITE):
            return partial(self._ask_for_topic, request, handler)
        if needed(request.access) is Standing.STRANGER:
            return handler
        return partial(self._ask, request.access, handler)

    def _ask_for_topic(
        self, request: Request, handler: Handler, connection: Connection, command: RemotingCommand
    ) -> Answer | None:
        access = self._access(request, command)
        if needed(access) is Standing.STRANGER:
            return handler(connection, command)
        return self._ask(access, handler, connection, command)

    def _access(self, request: Request, command: RemotingCommand) -> Access:
        """Return what a request does to what. That of a topic is in its header."""
        if request.access != (Resource.TOPICS, Action.WRITE):
            return request.access
        topic = command.decode_header(CreateTopicRequestHeader).topic
        if self._names.is_of_the_system(topic):
            return Resource.SYSTEM_TOPICS, Action.WRITE
        return request.access

    def _ask(
        self, access: Access, handler: Handler, connection: Connection, command: RemotingCommand
    ) -> Answer | None:
        fields = command.ext_fields()
        standing, command = self._attributed(connection, command, fields)
        if standing < needed(access):
            raise self._too_low(access, connection, command)
        connection.caller = CALLERS[standing]
        return handler(connection, command)

    def _sign_in(
        self, handler: Handler, connection: Connection, command: RemotingCommand
    ) -> Answer | None:
        """Note who seals from here on, and look at the first seal."""
        answer = handler(connection, command)
        standing, _ = self._attributed(connection, command, {})
        if standing is Standing.STRANGER and self._clients is not ClientAccess.OPEN:
            connection.caller = self._user(connection, command, {})
        return answer

    # -- users -----------------------------------------------------------------------------------

    def _ask_user(
        self, request: Request, handler: Handler, connection: Connection, command: RemotingCommand
    ) -> Answer | None:
        fields = command.ext_fields()
        standing, command = self._attributed(connection, command, fields)
        if standing is not Standing.STRANGER:
            access = self._access(request, command)
            if standing < needed(access):
                raise self._too_low(access, connection, command)
            connection.caller = CALLERS[standing]
            return handler(connection, command)
        caller = self._user(connection, command, fields)
        self._check(request, caller, connection, command, fields)
        connection.caller = caller
        if caller.share is not None:
            return self.quotas.take(caller.share, handler, connection, command)
        return handler(connection, command)

    def _user(
        self, connection: Connection, command: RemotingCommand, fields: Mapping[str, str]
    ) -> UserCaller:
        """Say which user has signed a request, or has shown a certificate for it."""
        sealed_by = connection.sealed_by
        call = None
        name = fields.get(ACCESS_KEY_FIELD) if sealed_by is None else sealed_by
        if connection.call_signature is not None:
            call = self._signed_call(connection, command, connection.call_signature)
            name = None if call is None else call.name
        if name is None and connection.peer_name is not None:
            shown = self.users.find(connection.peer_name)
            if shown is not None and shown.is_enabled:
                return self._caller(connection, shown)
        if name is None:
            raise self._refusal(
                connection, command, "username cannot be null.", USER_REMEDY, is_signature=True
            )
        if not self.users.count:
            # A node that has just started, or has a log to copy; or nobody has made a user yet.
            raise RequestError(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"{self._name} knows no users, or does not know them yet: `tandem user create NAME`"
                " makes the first",
            )
        user = self.users.find(name)
        if sealed_by is not None:
            signer = user if user is not None and user.is_enabled else None
            self._check_seal(connection, command, signer)
            assert user is not None, "nobody has sealed as nobody"
            return self._caller(connection, user)
        self._check_kind(connection, command)
        if call is not None:
            reason = why_call_not_signed(user, call)
        else:
            is_binary = command.serialize_type is SerializeType.ROCKETMQ
            reason = why_not_signed(user, fields, command.body, is_binary=is_binary)
        if reason is not None or user is None:
            # One text for all reasons: it does not say which users there are.
            detail = f"{name[:NAME_SHOWN_MAX]!r}: {reason}"
            raise self._refusal(
                connection, command, "check signature failed.", detail=detail, is_signature=True
            )
        return self._caller(connection, user)

    def _signed_call(
        self, connection: Connection, command: RemotingCommand, signature: CallSignature
    ) -> SignedCall | None:
        """None: a certificate says whose the call is."""
        if connection.peer_name is not None and not signature.authorization:
            return None
        try:
            return signature.read()
        except CallSignatureError as error:
            why = str(error)
            raise self._refusal(connection, command, why, USER_REMEDY, is_signature=True) from error

    def _caller(self, connection: Connection, user: User) -> UserCaller:
        last = connection.caller
        if isinstance(last, UserCaller) and last.user is user:
            return last
        asks = self._clients is ClientAccess.AUTHORIZED
        share, ip = self.quotas.share_of(user), connection.peer.ip
        return UserCaller(user, self.users, self._names, ip, asks=asks, share=share)

    def _check(
        self,
        request: Request,
        caller: UserCaller,
        connection: Connection,
        command: RemotingCommand,
        fields: Mapping[str, str],
    ) -> None:
        """Ask whether a user may do all that a request does."""
        least = needed(request.access)
        if least is Standing.NODE or command.code in REGISTRATIONS:
            raise self._too_low(request.access, connection, command)
        if caller.user.is_super:
            return
        if self._clients is not ClientAccess.AUTHORIZED:
            access = self._access(request, command)
            if needed(access) is not Standing.STRANGER:
                raise self._too_low(access, connection, command)
            return
        try:
            if not request.touches:
                caller.check(Kind.CLUSTER, "", Right.UPDATE)
            for touch in request.touches:
                self._check_touch(touch, request, caller, command, fields)
        except RequestError as error:
            if error.code != ResponseCode.NO_PERMISSION:
                raise  # what is named there cannot be read
            raise self._refusal(connection, command, error.remark) from None

    def _check_touch(
        self,
        touch: Touch,
        request: Request,
        caller: UserCaller,
        command: RemotingCommand,
        fields: Mapping[str, str],
    ) -> None:
        if touch is ANY_USER:
            return
        if touch.kind is Kind.CLUSTER:
            caller.check(touch.kind, "", *touch.rights)
            return
        are_routes = request.access == (Resource.ROUTES, Action.READ)
        for name in touch.names(command, fields):
            # A producer asks where the topic is that others are made after; its route says nothing.
            if are_routes and self._names.is_of_the_system(name):
                continue
            caller.check(touch.kind, name, *touch.rights)

    # -- nodes, operators, and brokers that are admitted -----------------------------------------

    def _attributed(
        self, connection: Connection, command: RemotingCommand, fields: Mapping[str, str]
    ) -> tuple[Standing, RemotingCommand]:
        """Say who sends a request, and what of it is theirs to say."""
        if SIGNATURE_FIELD in fields:
            complaint = self._seals.why_not_of_node(connection, command, fields)
            if complaint is not None:
                raise self._no_permission(connection, command, complaint)
            return Standing.NODE, command
        sealed_by = connection.sealed_by
        if sealed_by == OPERATOR_ACCESS_KEY:
            self._check_seal(connection, command, self._operator)
            return Standing.OPERATOR, command
        if sealed_by is None and fields.get(ACCESS_KEY_FIELD) == OPERATOR_ACCESS_KEY:
            self._check_kind(connection, command)
            is_binary = command.serialize_type is SerializeType.ROCKETMQ
            if not self._operator_key.is_signed(fields, command.body, is_binary=is_binary):
                reason = f"its Signature is not that of {OPERATOR_ACCESS_KEY}: {TOOL_REMEDY}"
                raise self._no_permission(connection, command, reason)
            return Standing.OPERATOR, command
        if command.code in REGISTRATIONS:
            try:
                own = self._admission.own_registration(command, connection.peer.ip)
            except NotAdmittedError as error:
                raise self._no_permission(connection, command, str(error)) from error
            return Standing.ADMITTED, own
        return Standing.STRANGER, command

    def _check_seal(
        self, connection: Connection, command: RemotingCommand, signer: Signer | None
    ) -> None:
        complaint = self._seals.why_not(connection, command, signer)
        if complaint is None:
            return
        detail = f"{(connection.sealed_by or '')[:NAME_SHOWN_MAX]!r}: {complaint.reason}"
        remark = f"check signature failed{f': {complaint.reason}' if complaint.is_said else '.'}"
        raise self._refusal(connection, command, remark, detail=detail, is_signature=True)

    def _check_kind(self, connection: Connection, command: RemotingCommand) -> None:
        """Ask whether a signature of RocketMQ's is taken at all."""
        if not (self._takes_all or connection.has_tls):
            raise self._refusal(connection, command, SEAL_REMEDY)

    # -- refusals --------------------------------------------------------------------------------

    def _too_low(
        self, access: Access, connection: Connection, command: RemotingCommand
    ) -> RequestError:
        resource, action = access
        remedy = TOOL_REMEDY if needed(access) is Standing.OPERATOR else REMEDY
        reason = f"this would {action.value} {resource.value} of {self._name}: {remedy}"
        return self._no_permission(connection, command, reason)

    def _no_permission(
        self, connection: Connection, command: RemotingCommand, reason: str
    ) -> RequestError:
        return self._refusal(connection, command, f"no permission: {reason}", detail=reason)

    def _refusal(
        self,
        connection: Connection,
        command: RemotingCommand,
        remark: str,
        remedy: str = "",
        *,
        detail: str = "",
        is_signature: bool = False,
    ) -> RequestError:
        """Return what is answered; `detail` is for the node's log alone."""
        detail = detail or remark
        claimed = connection.sealed_by or claimed_by(command)
        if self._told.is_news(detail, about=(connection.peer.ip, command.code)):
            _log.warning("request %d of %s is refused: %s", command.code, connection.peer, detail)
        if self._audit is not None:
            who = f"says to be {claimed[:NAME_SHOWN_MAX]}" if claimed else "nobody"
            self._audit.refused(who, connection, command, detail)
        if is_signature:
            self._note_wrong_signature(connection)
        return RequestError(ResponseCode.NO_PERMISSION, f"{remark} {remedy}".rstrip())

    def _note_wrong_signature(self, connection: Connection) -> None:
        """End a connection that guesses. No user is locked out: others could do that to them."""
        now = trio.current_time()
        recent = [at for at in connection.refusals if at > now - WRONG_SIGNATURES_SECONDS]
        connection.refusals = [*recent, now]
        if len(connection.refusals) > WRONG_SIGNATURES_MAX:
            _log.warning(
                "connection from %s ends: %d requests in %d s had no good signature",
                *(connection.peer, len(connection.refusals), WRONG_SIGNATURES_SECONDS),
            )
            connection.reading.cancel()
