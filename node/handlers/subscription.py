"""What a pull wants: by the subscription it carries, or by the last heartbeat of its group.

    TAG      the codes of its tags, which the queue's units hold; the consumer compares the tags
    SQL92    an expression, which is put to the properties of every message; this is final

A pull whose expression cannot be compiled is refused. RocketMQ answers it with every message.

Source: RocketMQ 5.3.3, PullMessageProcessor, FilterAPI, ConsumerFilterManager.build.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import msgspec

from node.errors import RequestError
from node.filter.message_filter import SQL92, compile_filter
from node.filter.sql92_tokens import Sql92Error
from node.tables.client_table import ClientTable
from node.tables.consumer_filter_table import ConsumerFilterTable
from store.messages.message_filter import MessageFilter
from tandem.wire.message_properties import java_string_hash
from tandem.wire.request_headers import (
    PULL_FLAG_SUBSCRIPTION,
    PullMessageRequestHeader,
    SubscriptionData,
)
from tandem.wire.response_code import ResponseCode
from tandem.wire.subscription_group import SubscriptionGroupConfig

TAG: Final = "TAG"
SUBSCRIBE_ALL: Final = "*"
TAGS_SEPARATOR: Final = "||"


class Wanted(msgspec.Struct, frozen=True):
    """What a pull wants: codes of tags, None for all; and what is put to the properties."""

    tags_codes: frozenset[int] | None = None
    message_filter: MessageFilter | None = None


class Subscriptions:
    """Answers that for the pulls of one node."""

    def __init__(
        self,
        clients: ClientTable,
        filters: ConsumerFilterTable,
        *,
        enable_property_filter: bool,
    ) -> None:
        self._clients = clients
        self._filters = filters
        self._enable_property_filter = enable_property_filter

    def of(self, header: PullMessageRequestHeader, group: SubscriptionGroupConfig) -> Wanted:
        """Return what a pull wants.

        Raises:
            RequestError: the group has not said so, or what it says makes no sense.
        """
        if header.sys_flag & PULL_FLAG_SUBSCRIPTION:
            return self.said(header.subscription, header.expression_type)
        subscription = self._registered(header, group)
        if is_tag_type(subscription.expression_type):
            return by_tags(subscription.sub_string)
        return self._by_registered_filter(header, subscription.expression_type or "")

    def said(self, text: str | None, kind: str | None) -> Wanted:
        """Return what a request wants that says it itself.

        Raises:
            RequestError: what it says makes no sense.
        """
        if is_tag_type(kind):
            return by_tags(text)
        return self._by_expression(text or "", kind or "")

    def _registered(
        self, header: PullMessageRequestHeader, group: SubscriptionGroupConfig
    ) -> SubscriptionData:
        if not self._clients.has_group(header.consumer_group):
            raise RequestError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's group info not exist: {header.consumer_group};"
                " send a heartbeat first",
            )
        if not group.consume_broadcast_enable and self._clients.is_broadcasting(group.group_name):
            raise RequestError(
                ResponseCode.NO_PERMISSION,
                f"the consumer group[{group.group_name}] can not consume by broadcast way",
            )
        subscription = self._clients.subscription(header.consumer_group, header.topic)
        if subscription is None:
            raise RequestError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's subscription not exist: group {header.consumer_group},"
                f" topic {header.topic}",
            )
        if subscription.sub_version < header.sub_version:
            raise RequestError(
                ResponseCode.SUBSCRIPTION_NOT_LATEST,
                f"the consumer's subscription not latest: group {header.consumer_group},"
                f" topic {header.topic}",
            )
        return subscription

    def _by_registered_filter(self, header: PullMessageRequestHeader, kind: str) -> Wanted:
        self._check_enabled(kind)
        found = self._filters.filter_of(header.topic, header.consumer_group)
        if found is None:
            raise RequestError(
                ResponseCode.FILTER_DATA_NOT_EXIST,
                "The broker's consumer filter data is not exist!Your expression may be wrong!",
            )
        if found.data.client_version < header.sub_version:
            raise RequestError(
                ResponseCode.FILTER_DATA_NOT_LATEST,
                "the consumer's consumer filter data not latest",
            )
        return Wanted(message_filter=found)

    def _by_expression(self, text: str, kind: str) -> Wanted:
        try:
            compiled = compile_filter(text) if kind == SQL92 and text else None
        except Sql92Error as error:
            raise _parse_failed(str(error)) from error
        if compiled is None and not text:
            raise _parse_failed(f"Expression can't be null! {kind}")
        self._check_enabled(kind)
        if compiled is None:
            raise _parse_failed(f"there is no filter of type {kind}; there are TAG and SQL92")
        return Wanted(message_filter=compiled)

    def _check_enabled(self, kind: str) -> None:
        if not self._enable_property_filter:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"The broker does not support consumer to filter message by {kind}",
            )

    def check(self, text: str, kind: str | None) -> None:
        """Make sure that a subscription can be served.

        Source: ClientManageProcessor.checkClientConfig.

        Raises:
            RequestError: It cannot; the remark is what the client shows.
        """
        if is_tag_type(kind):
            return
        self._check_enabled(kind or "")
        if kind != SQL92:
            raise RequestError(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                f"there is no filter of type {kind}; there are TAG and SQL92",
            )
        try:
            compile_filter(text)
        except Sql92Error as error:
            raise RequestError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from error


def is_tag_type(kind: str | None) -> bool:
    """Source: ExpressionType.isTagType."""
    return kind in (None, "", TAG)


def _parse_failed(why: str) -> RequestError:
    return RequestError(
        ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"parse the consumer's subscription failed: {why}"
    )


def as_told(subscription: SubscriptionData) -> SubscriptionData:
    """A subscription as operators see it: with its tags, which are kept in its text alone."""
    if not is_tag_type(subscription.expression_type):
        return subscription
    text = subscription.sub_string.strip()
    tags = [tag.strip() for tag in text.split(TAGS_SEPARATOR)] if text != SUBSCRIBE_ALL else []
    named = [tag for tag in dict.fromkeys(tags) if tag]
    return msgspec.structs.replace(
        subscription, tags_set=named, code_set=[java_string_hash(tag) for tag in named]
    )


@lru_cache(maxsize=1024)
def by_tags(subscription: str | None) -> Wanted:
    """Return what a subscription such as `TagA || TagB` wants.

    Source: FilterAPI.buildSubscriptionData.

    Raises:
        RequestError: It is not a list of tags.
    """
    if subscription is None or subscription.strip() in ("", SUBSCRIBE_ALL):
        return Wanted()
    tags = [tag.strip() for tag in subscription.split(TAGS_SEPARATOR)]
    codes = frozenset(java_string_hash(tag) for tag in tags if tag)
    if not codes:
        raise _parse_failed(f"{subscription!r} names no tag")
    return Wanted(codes)
