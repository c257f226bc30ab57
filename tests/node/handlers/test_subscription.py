import pytest

from node.errors import RequestError
from node.handlers.subscription import Subscriptions, by_tags
from node.tables.consumer_filter_table import SubscriptionFilter
from tandem.wire.request_headers import (
    PULL_FLAG_SUBSCRIPTION,
    ConsumerData,
    HeartbeatData,
    PullMessageRequestHeader,
    SubscriptionData,
)
from tandem.wire.response_code import ResponseCode
from tandem.wire.subscription_group import SubscriptionGroupConfig
from tests.node.doubles import Broker, Client

GROUP = SubscriptionGroupConfig("g")


def header(
    flags: int = PULL_FLAG_SUBSCRIPTION,
    text: str | None = "a > 1",
    kind: str | None = "SQL92",
    version: int = 0,
) -> PullMessageRequestHeader:
    return PullMessageRequestHeader("g", "T", 0, 0, 32, flags, 0, 0, version, text, kind)


def beat_of(*wanted: SubscriptionData) -> HeartbeatData:
    group = ConsumerData("g", subscription_data_set=[*wanted])
    return HeartbeatData("c", consumer_data_set=[group])


def with_heartbeat(broker: Broker, wanted: SubscriptionData) -> None:
    broker.clients.heartbeat(beat_of(wanted), Client({}, broker.outbox).connection, 0)
    kind, version = wanted.expression_type or "", wanted.sub_version
    broker.filters.register(
        "g", [SubscriptionFilter(wanted.topic, wanted.sub_string, kind, version)]
    )


def refused(broker: Broker, asked: PullMessageRequestHeader) -> tuple[int, str]:
    with pytest.raises(RequestError) as caught:
        broker.subscriptions.of(asked, GROUP)
    return caught.value.code, caught.value.remark


@pytest.mark.parametrize("text", [None, "", "*", " * "])
def test_everything_is_no_filter(text: str | None) -> None:
    wanted = by_tags(text)
    assert (wanted.tags_codes, wanted.message_filter) == (None, None)


def test_tags_become_javas_hashes() -> None:
    assert by_tags("TagA || TagB||").tags_codes == frozenset({2598919, 2598920})


def test_a_subscription_without_tags_is_refused() -> None:
    with pytest.raises(RequestError) as caught:
        by_tags(" || ")
    assert caught.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


async def test_a_pull_brings_its_own_expression() -> None:
    wanted = Broker().subscriptions.of(header(), GROUP)
    assert wanted.tags_codes is None
    assert wanted.message_filter is not None
    assert wanted.message_filter.matches(b"a\x012\x02")


@pytest.mark.parametrize(
    ("text", "kind", "remark"),
    [
        ("a >", "SQL92", "Was expecting one of"),
        ("", "SQL92", "Expression can't be null! SQL92"),
        (None, "SQL92", "Expression can't be null! SQL92"),
        ("(" * 5_000, "SQL92", "deeper than"),
        ("a = 1", "XPATH", "there is no filter of type XPATH"),
    ],
)
async def test_an_expression_that_is_none_is_refused(
    text: str | None, kind: str, remark: str
) -> None:
    code, said = refused(Broker(), header(text=text, kind=kind))
    assert code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert said.startswith("parse the consumer's subscription failed")
    assert remark in said


async def test_a_broker_may_support_tags_alone() -> None:
    broker = Broker()
    broker.subscriptions = Subscriptions(
        broker.clients, broker.filters, enable_property_filter=False
    )
    with_heartbeat(broker, SubscriptionData("T", "a > 1", 5, "SQL92"))
    remark = "The broker does not support consumer to filter message by SQL92"
    for flags in (0, PULL_FLAG_SUBSCRIPTION):
        assert refused(broker, header(flags)) == (ResponseCode.SYSTEM_ERROR, remark)
    with pytest.raises(RequestError) as caught:
        broker.subscriptions.check("a > 1", "SQL92")
    assert (caught.value.code, caught.value.remark) == (ResponseCode.SYSTEM_ERROR, remark)
    broker.subscriptions.check("TagA", "TAG")


async def test_the_expression_of_the_heartbeat_is_used() -> None:
    broker = Broker()
    assert refused(broker, header(0))[0] == ResponseCode.SUBSCRIPTION_NOT_EXIST
    with_heartbeat(broker, SubscriptionData("T", "a > 1", 5, "SQL92"))
    wanted = broker.subscriptions.of(header(0, version=5), GROUP)
    assert wanted.message_filter is broker.filters.filter_of("T", "g")
    code, _ = refused(broker, header(0, version=6))
    assert code == ResponseCode.SUBSCRIPTION_NOT_LATEST


async def test_a_filter_may_be_missing_or_behind() -> None:
    broker = Broker()
    with_heartbeat(broker, SubscriptionData("T", "a >", 5, "SQL92"))
    assert refused(broker, header(0, version=5)) == (
        ResponseCode.FILTER_DATA_NOT_EXIST,
        "The broker's consumer filter data is not exist!Your expression may be wrong!",
    )
    with_heartbeat(broker, SubscriptionData("T", "a > 1", 6, "SQL92"))
    beat = beat_of(SubscriptionData("T", "a > 1", 7, "SQL92"))
    broker.clients.heartbeat(beat, Client({}, broker.outbox).connection, 0)
    assert refused(broker, header(0, version=7)) == (
        ResponseCode.FILTER_DATA_NOT_LATEST,
        "the consumer's consumer filter data not latest",
    )


async def test_a_check_says_what_is_wrong_in_rocketmqs_words() -> None:
    subscriptions = Broker().subscriptions
    subscriptions.check("a > 1", "SQL92")
    with pytest.raises(RequestError) as caught:
        subscriptions.check("a", "XX")
    assert caught.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    with pytest.raises(RequestError) as caught:
        subscriptions.check("a >", "SQL92")
    assert caught.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert caught.value.remark == (
        'org.apache.rocketmq.filter.parser.ParseException: Encountered "<EOF>" at line 1, column'
        " 3.\nWas expecting one of:\n"
        '    "NOT" ...\n    "TRUE" ...\n    "FALSE" ...\n    "NULL" ...\n'
        "    <DECIMAL_LITERAL> ...\n    <FLOATING_POINT_LITERAL> ...\n    <STRING_LITERAL> ...\n"
        '    <ID> ...\n    "(" ...\n    "-" ...\n    "+" ...\n    '
    )
