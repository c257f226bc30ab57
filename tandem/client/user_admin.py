"""The rules of administration of users, and of what they may.

Each group of nodes has its own table of users. A client has one name at all of them, so a change
goes to the master of each, and a user is shown as all of them say together.

Source: RocketMQ 5.3.3, DefaultMQAdminExtImpl.createUser to .listAcl, which write to the brokers of
a cluster one after the other.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final, TypeVar

import msgspec

from tandem.client.admin_calls import EVERYTHING, AdminCalls, illegible
from tandem.client.errors import (
    BrokerError,
    RouteCause,
    RouteNotFoundError,
    UserExistsError,
    UserNotFoundError,
)
from tandem.client.flow import Call, Flow
from tandem.wire.access_control import (
    AclInfo,
    PolicyEntryInfo,
    PolicyInfo,
    PolicyType,
    UserInfo,
    subject_of,
    user_of,
)
from tandem.wire.admin_headers import (
    AclRequestHeader,
    DeleteAclRequestHeader,
    ListAclRequestHeader,
    ListUserRequestHeader,
    UserRequestHeader,
)
from tandem.wire.request_code import RequestCode
from tandem.wire.route import MASTER_ID
from tandem.wire.untrusted import UnreadableError, decode_json
from tandem.wire.user_quota import OF_THE_FILE, UserQuota

GONE: Final = "The acl is not exist."
"""What a broker says of entries that are not there. Source: AuthorizationMetadataManagerImpl."""


InfoT = TypeVar("InfoT", UserInfo, AclInfo)


class UserDescription(msgspec.Struct, frozen=True):
    """One user, as the groups of nodes say together.

    Attributes:
        name: the access key.
        user_type: Super or Normal.
        status: enable or disable.
        policies: what the user may, by the first group.
        groups: the groups that know the user.
        missing_at: the groups that do not, for a change has not come to them.
        differs: whether the groups say different things of the user.
        quota: the bounds that the user has of its own at each node, by the first group.
        refused: how many requests the masters have refused since they run, by the bound in words.
    """

    name: str
    user_type: str
    status: str
    policies: list[PolicyInfo]
    groups: list[str]
    missing_at: list[str] = []
    differs: bool = False
    quota: UserQuota = OF_THE_FILE
    refused: dict[str, int] = msgspec.field(default_factory=dict)

    @property
    def is_super(self) -> bool:
        """Whether nothing is asked of what the user may."""
        return self.user_type == "Super"


class UserAdministration:
    """Users and their rights, for one administrator. Flows only."""

    def __init__(self, calls: AdminCalls) -> None:
        self._calls = calls

    def users(self) -> Flow[list[UserDescription]]:
        """Return all users, by name, with what they may."""
        users: dict[str, dict[str, UserInfo]] = {}
        acls: dict[str, dict[str, list[PolicyInfo]]] = {}
        groups = yield from self._addresses()
        for group, address in groups.items():
            code = RequestCode.AUTH_LIST_USER
            for info in (yield from self._list(address, code, ListUserRequestHeader(), UserInfo)):
                if info.username is not None:
                    users.setdefault(info.username, {})[group] = info
            code = RequestCode.AUTH_LIST_ACL
            for acl in (yield from self._list(address, code, ListAclRequestHeader(), AclInfo)):
                name = user_of(acl.subject or "")
                if name is not None:
                    acls.setdefault(name, {})[group] = acl.policies or []
        return [
            _described(name, of_groups, acls.get(name, {}), list(groups))
            for name, of_groups in sorted(users.items())
        ]

    def user(self, name: str) -> Flow[UserDescription]:
        """Return one user.

        Raises:
            UserNotFoundError: there is none of that name.
        """
        for found in (yield from self.users()):
            if found.name == name:
                return found
        raise UserNotFoundError(name)

    def create(self, name: str, secret: str, *, is_super: bool = False) -> Flow[None]:
        """Make a user at every group, who may nothing yet unless it is a Super.

        Raises:
            UserExistsError: a group knows one of that name; nothing was done then.
        """
        known = [each for each in (yield from self.users()) if each.name == name]
        if known:
            raise UserExistsError(name, known[0].groups)
        info = UserInfo(secret, None, "Super" if is_super else "Normal", name)
        yield from self._order(RequestCode.AUTH_CREATE_USER, UserRequestHeader(name), info)

    def alter(
        self,
        name: str,
        *,
        secret: str | None = None,
        is_super: bool | None = None,
        is_enabled: bool | None = None,
        quota: UserQuota | None = None,
    ) -> Flow[None]:
        """Change what is given of a user, at every group; one that has none is given it.

        `quota` replaces all bounds of its own; `UserQuota()` gives it those of the cluster file.

        Raises:
            UserNotFoundError: no group has one of that name.
            BrokerError: a group that has none cannot be given it, for there is no `secret`.
        """
        user = yield from self.user(name)
        kind = user.user_type if is_super is None else "Super" if is_super else "Normal"
        status = user.status if is_enabled is None else "enable" if is_enabled else "disable"
        info = UserInfo(secret, status, kind, name, quota)
        header = UserRequestHeader(name)
        if user.missing_at:
            if secret is None:
                lacking = ", ".join(user.missing_at)
                raise BrokerError(16, f"{lacking} has no user {name}: give a secret, too", lacking)
            has_own = quota is None and user.quota != OF_THE_FILE
            own = msgspec.structs.replace(info, quota=user.quota if has_own else quota)
            yield from self._order(RequestCode.AUTH_CREATE_USER, header, own, user.missing_at)
        yield from self._order(RequestCode.AUTH_UPDATE_USER, header, info, user.groups)

    def delete(self, name: str) -> Flow[None]:
        """Delete a user and all rights, at every group.

        Raises:
            UserNotFoundError: no group has one of that name.
        """
        yield from self.user(name)
        yield from self._order(RequestCode.AUTH_DELETE_USER, UserRequestHeader(name), None)

    def grant(
        self,
        name: str,
        entries: Sequence[PolicyEntryInfo],
        *,
        policy_type: PolicyType = PolicyType.CUSTOM,
    ) -> Flow[None]:
        """Set what a user may do with some resources, at every group.

        An entry about an equal resource is replaced.
        """
        subject = subject_of(name)
        info = AclInfo(subject, [PolicyInfo(policy_type.value, list(entries))])
        yield from self._order(RequestCode.AUTH_UPDATE_ACL, AclRequestHeader(subject), info)

    def revoke(
        self,
        name: str,
        resource: str | None = None,
        *,
        policy_type: PolicyType = PolicyType.CUSTOM,
    ) -> Flow[bool]:
        """Take away what a user may do with a resource, or with all; return if there was any."""
        header = DeleteAclRequestHeader(subject_of(name), policy_type.value, resource)
        found = False
        for group in (yield from self._addresses()):
            try:
                yield from self._order(RequestCode.AUTH_DELETE_ACL, header, None, [group])
            except BrokerError as error:
                if error.remark != GONE:
                    raise
            else:
                found = True
        return found

    def _order(
        self,
        code: RequestCode,
        header: msgspec.Struct,
        body: msgspec.Struct | None,
        names: list[str] | None = None,
    ) -> Flow[None]:
        data = b"" if body is None else msgspec.json.encode(body)
        yield from self._calls.each_master(
            EVERYTHING, code, lambda _: header, names=names, body=data
        )

    def _addresses(self) -> Flow[dict[str, str]]:
        """Return where each group is asked: at its master, or at another node if it has none."""
        info = yield from self._calls.cluster_info()
        if not info.broker_addr_table:
            raise RouteNotFoundError(
                EVERYTHING, RouteCause.NO_BROKER, "no broker is registered", may_pass=True
            )
        return {
            name: broker.broker_addrs.get(MASTER_ID) or next(iter(broker.broker_addrs.values()))
            for name, broker in sorted(info.broker_addr_table.items())
            if broker.broker_addrs
        }

    def _list(
        self, address: str, code: RequestCode, header: msgspec.Struct, kind: type[InfoT]
    ) -> Flow[list[InfoT]]:
        call = Call(address, code, header, self._calls.deadline())
        answer = yield from self._calls.call_as_allowed(call)
        try:
            return decode_json(answer.body, list[kind]) if answer.body else []  # type: ignore[valid-type]
        except UnreadableError as error:
            raise illegible(address, error) from error


def _described(
    name: str,
    users: dict[str, UserInfo],
    acls: dict[str, list[PolicyInfo]],
    groups: list[str],
) -> UserDescription:
    first = next(iter(users.values()))
    said = {
        (info.user_type, info.user_status, info.quota, repr(acls.get(group, [])))
        for group, info in users.items()
    }
    refused: Counter[str] = Counter()
    for info in users.values():
        refused.update(info.refused or {})
    missing = [group for group in groups if group not in users]
    return UserDescription(
        name,
        first.user_type or "Normal",
        first.user_status or "enable",
        acls.get(next(iter(users)), []),
        list(users),
        missing,
        differs=len(said) > 1 or bool(missing),
        quota=first.quota or OF_THE_FILE,
        refused=dict(refused),
    )
