"""Rules of users: what an entry says, and which of several decides."""

import ipaddress
from itertools import permutations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.wire.access_control import (
    ACL_BYTES_MAX,
    ENTRIES_MAX,
    AclError,
    AclFault,
    Entry,
    Exactness,
    Kind,
    PolicyEntryInfo,
    PolicyInfo,
    PolicyType,
    ResourcePattern,
    Right,
    Rules,
    parse_entry,
    parse_policy_type,
    parse_resource,
    parse_right,
    rules_of,
    subject_of,
    user_of,
    with_policies,
    without_resource,
)

IP = "127.0.0.1"
TOPIC, GROUP = Kind.TOPIC, Kind.GROUP


def entry(decision: str, resource: str, actions: str = "Pub", *source_ips: str) -> PolicyEntryInfo:
    return PolicyEntryInfo(resource, actions.split(","), list(source_ips) or None, decision)


def may(entries: list[PolicyEntryInfo], name: str = "T1", ip: str = IP) -> bool:
    rules = rules_of([PolicyInfo(None, entries)])
    return rules.decide(TOPIC, name, Right.PUB, ip).is_allowed


@pytest.mark.parametrize(
    ("first", "second", "is_allowed"),
    [
        # The pairs that a broker of RocketMQ 5.3.3 was asked about, with our answers.
        ("Deny Topic:T1", "Allow Topic:T1", False),
        ("Allow Topic:T1", "Deny Topic:T*", True),
        ("Deny Topic:T1", "Allow Topic:T*", False),
        ("Deny Topic:T1", "Allow Topic:*", False),
        ("Deny Topic:*", "Allow Topic:T1", True),
        ("Allow *", "Deny Topic:T1", False),
        ("Deny *", "Allow Topic:T1", True),
        ("Deny Topic:T*", "Allow Topic:T1*", True),
        ("Deny Topic:T1*", "Allow Topic:T*", False),
        ("Deny *", "Allow Topic:*", True),
        ("Deny Topic:T*", "Allow Topic:T*", False),
    ],
)
def test_the_more_exact_entry_decides_in_whatever_order(
    first: str, second: str, *, is_allowed: bool
) -> None:
    infos = [entry(*text.split(" ", 1)) for text in (first, second)]
    assert may(infos) is may(infos[::-1]) is is_allowed


def test_of_three_entries_the_literal_one_decides_in_all_orders() -> None:
    three = [entry("Allow", "Topic:T*"), entry("Deny", "Topic:T1"), entry("Allow", "Topic:*")]
    assert [may(list(each)) for each in permutations(three)] == [False] * 6
    assert [may(list(each), "T2") for each in permutations(three)] == [True] * 6


def test_nothing_is_allowed_that_no_entry_is_about() -> None:
    verdict = Rules().decide(TOPIC, "T1", Right.PUB, IP)
    assert (verdict.is_allowed, verdict.entry) == (False, None)
    assert not may([entry("Allow", "Topic:T1", "Sub")])
    assert not may([entry("Allow", "Group:T1")])
    assert not may([entry("Allow", "Topic:T1")], "T11")
    assert not may([entry("Allow", "Topic:T1*")], "T")
    assert may([entry("Allow", "Topic:T1*")], "T1")


def test_a_right_is_one_of_several_or_all() -> None:
    rules = rules_of(
        [PolicyInfo("Custom", [entry("Deny", "Topic:T1", "Sub"), entry("Allow", "Topic:*", "GET")])]
    )
    assert rules.decide_any(TOPIC, "T1", (Right.SUB, Right.GET), IP).is_allowed
    refused = rules.decide_any(TOPIC, "T1", (Right.SUB, Right.UPDATE), IP)
    assert refused.entry is not None
    assert str(refused.entry) == "Deny Sub on Topic:T1"
    every = parse_entry(entry("allow", "topic:T1", "all"))
    assert every.rights == frozenset(Right)
    assert str(every) == "Allow All on Topic:T1"


def test_default_entries_count_where_no_custom_one_is_about_it() -> None:
    policies = [
        PolicyInfo("Default", [entry("Allow", "Topic:*", "Pub,Sub")]),
        PolicyInfo("Custom", [entry("Deny", "*", "Sub")]),
    ]
    rules = rules_of(policies)
    assert rules.decide(TOPIC, "T1", Right.PUB, IP).is_allowed
    assert not rules.decide(TOPIC, "T1", Right.SUB, IP).is_allowed


def test_where_a_request_comes_from_is_a_part_of_an_entry() -> None:
    infos = [entry("Allow", "Topic:T1", "Pub", "10.0.0.0/8", "192.168.1.5", "2001:db8::/32")]
    allowed = ["10.9.8.7", "192.168.1.5", "2001:db8::1"]
    assert all(may(infos, ip=ip) for ip in allowed)
    assert not any(may(infos, ip=ip) for ip in ("11.0.0.1", "192.168.1.6", "2001:db9::1"))
    deny = [entry("Allow", "Topic:*"), entry("Deny", "Topic:T1", "Pub", "10.0.0.0/8")]
    assert (may(deny, ip="10.1.1.1"), may(deny, ip="11.1.1.1")) == (False, True)


@pytest.mark.parametrize(
    ("info", "fault"),
    [
        (entry("Allow", "Nothing:T1"), AclFault.RESOURCE),
        (entry("Allow", "Topic:"), AclFault.RESOURCE),
        (entry("Allow", "Topic"), AclFault.RESOURCE),
        (entry("Allow", "Namespace:n"), AclFault.RESOURCE),
        (PolicyEntryInfo(None, ["Pub"], None, "Allow"), AclFault.RESOURCE),
        (entry("Allow", "Topic:T1", ""), AclFault.ACTIONS),
        (PolicyEntryInfo("Topic:T1", None, None, "Allow"), AclFault.ACTIONS),
        (entry("Allow", "Topic:T1", "Write"), AclFault.ACTIONS),
        (entry("Allow", "Topic:T1", "Any"), AclFault.ACTION_ANY),
        (entry("Allow", "Topic:T1", "Pub", "127.0.0.*"), AclFault.SOURCE_IP),
        (entry("Allow", "Topic:T1", "Pub", "127.0.0.1-127.0.0.9"), AclFault.SOURCE_IP),
        (entry("Perhaps", "Topic:T1"), AclFault.DECISION),
        (PolicyEntryInfo("Topic:T1", ["Pub"]), AclFault.DECISION),
    ],
)
def test_an_entry_that_cannot_be_says_what_is_wrong_in_rocketmqs_words(
    info: PolicyEntryInfo, fault: AclFault
) -> None:
    with pytest.raises(AclError) as caught:
        parse_entry(info)
    assert caught.value.fault is fault
    assert str(caught.value).startswith(fault.value)


def test_an_acl_has_bounds() -> None:
    most = [entry("Allow", f"Topic:T{number}") for number in range(ENTRIES_MAX)]
    assert len(rules_of([PolicyInfo(None, most)]).custom) == ENTRIES_MAX
    for too_large in (
        [*most, entry("Allow", "Topic:U")],
        [entry("Allow", "Topic:" + "x" * ACL_BYTES_MAX)],
    ):
        with pytest.raises(AclError) as caught:
            rules_of([PolicyInfo(None, too_large)])
        assert caught.value.fault is AclFault.TOO_LARGE


def test_names_are_read_in_any_case_and_what_follows_the_first_star_is_nothing() -> None:
    assert parse_resource("*") == ResourcePattern(None, Exactness.ANY_OF_ANY, "")
    assert parse_resource("GROUP: g1 ") == ResourcePattern(GROUP, Exactness.LITERAL, "g1")
    assert parse_resource("Topic:a*b*") == ResourcePattern(TOPIC, Exactness.PREFIX, "a")
    assert parse_resource("cluster:*") == ResourcePattern(Kind.CLUSTER, Exactness.ANY_OF_KIND, "")
    texts = ["*", "Group:g1", "Topic:a*", "Cluster:*", "Topic:a:b"]
    assert [str(parse_resource(text)) for text in texts] == texts
    assert parse_right(" pUb ") is Right.PUB
    assert parse_policy_type(None) is parse_policy_type("CUSTOM") is PolicyType.CUSTOM
    with pytest.raises(AclError) as caught:
        parse_policy_type("Other")
    assert caught.value.fault is AclFault.POLICY_TYPE
    assert (user_of("User:alice"), user_of("user:a:b"), user_of("Group:g"), user_of("User:")) == (
        "alice",
        "a:b",
        None,
        None,
    )
    assert user_of(subject_of("alice")) == "alice"


def test_an_equal_resource_is_replaced_and_others_are_added() -> None:
    before = with_policies([], [PolicyInfo(None, [entry("Allow", "Topic:T1"), entry("Deny", "*")])])
    after = with_policies(
        before,
        [
            PolicyInfo("custom", [entry("Deny", "topic:T1", "Sub"), entry("Allow", "Group:g")]),
            PolicyInfo("Default", [entry("Allow", "Topic:T1")]),
        ],
    )
    assert [(each.policy_type, len(each.entries or [])) for each in after] == [
        ("Custom", 3),
        ("Default", 1),
    ]
    rules = rules_of(after)
    assert str(rules.custom[0]) == "Deny Sub on Topic:T1"
    with pytest.raises(AclError):
        with_policies(before, [PolicyInfo(None, [entry("Allow", "Topic:")])])
    left = without_resource(after, PolicyType.CUSTOM, parse_resource("Topic:T1"))
    assert [len(each.entries or []) for each in left] == [2, 1]
    assert without_resource(left, PolicyType.CUSTOM, None) == [after[1]]
    assert without_resource([after[1]], PolicyType.DEFAULT, parse_resource("Topic:T1")) == []
    assert without_resource(left, PolicyType.CUSTOM, parse_resource("Topic:T9")) == left


def test_it_travels_as_rocketmq_writes_it() -> None:
    policy = PolicyInfo("Custom", [entry("Allow", "Topic:T1", "Pub,Sub", "10.0.0.1")])
    assert msgspec.to_builtins(policy) == {
        "policyType": "Custom",
        "entries": [
            {
                "resource": "Topic:T1",
                "actions": ["Pub", "Sub"],
                "sourceIps": ["10.0.0.1"],
                "decision": "Allow",
            }
        ],
    }


_NAMES = st.sampled_from(["", "a", "ab", "abc", "abd", "b", "ba", "*"])
_ENTRIES = st.builds(
    PolicyEntryInfo,
    st.one_of(
        st.just("*"),
        st.builds(
            "{}:{}{}".format,
            st.sampled_from(["Topic", "Group", "Cluster"]),
            st.sampled_from(["a", "ab", "abc", "b"]),
            st.sampled_from(["", "*"]),
        ),
        st.sampled_from(["Topic:*", "Group:*"]),
    ),
    st.lists(st.sampled_from(["Pub", "Sub", "All"]), min_size=1, max_size=2),
    st.none() | st.just(["10.0.0.0/8"]) | st.just(["127.0.0.1", "::1"]),
    st.sampled_from(["Allow", "Deny"]),
)


@given(
    policies=st.lists(
        st.builds(
            PolicyInfo, st.sampled_from(["Custom", "Default"]), st.lists(_ENTRIES, max_size=8)
        ),
        max_size=4,
    ),
    kind=st.sampled_from(Kind),
    name=_NAMES,
    right=st.sampled_from([Right.PUB, Right.SUB, Right.GET]),
    ip=st.sampled_from([IP, "10.9.8.7", "::1"]),
)
def test_what_is_found_by_name_is_what_decides_one_after_the_other(
    policies: list[PolicyInfo], kind: Kind, name: str, right: Right, ip: str
) -> None:
    address = ipaddress.ip_address(ip)

    def is_about(entry: Entry) -> bool:
        return (
            right in entry.rights
            and entry.resource.contains(kind, name)
            and (not entry.networks or any(address in each for each in entry.networks))
        )

    rules = rules_of(policies)
    for entries in (rules.custom, rules.default):
        assert list(entries) == sorted(entries, key=lambda entry: entry.rank, reverse=True)
    first = next(filter(is_about, (*rules.custom, *rules.default)), None)
    verdict = rules.decide(kind, name, right, ip)
    assert (verdict.entry, verdict.is_allowed) == (first, first is not None and first.allows)
