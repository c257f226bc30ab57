"""What is not served is refused in words, counted, and logged now and then."""

import logging

import pytest
import trio
from trio.testing import MockClock

from node.errors import RequestError
from node.remoting.unsupported import CODES_MAX, LOG_SECONDS, OTHERS, WORDS, UnsupportedRequests
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.response_code import ResponseCode
from tests.node.doubles import Client


def refused(unsupported: UnsupportedRequests, code: int) -> str:
    with pytest.raises(RequestError) as caught:
        unsupported.refuse(Client({}).connection, RemotingCommand(code, 1))
    assert caught.value.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    return caught.value.remark


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (200056, "no POP state in RocksDB"),
        (1002, "no RocketMQ controller"),
        (51, "docs/security.md"),
    ],
)
async def test_the_words_name_the_thing(code: int, words: str) -> None:
    remark = refused(UnsupportedRequests(), code)
    assert remark.startswith(f" request type {code} not supported: ")
    assert words in remark


async def test_a_code_that_nobody_knows_is_refused_as_rocketmq_does() -> None:
    assert refused(UnsupportedRequests(), 9999) == " request type 9999 not supported"


def test_what_is_served_has_no_words() -> None:
    assert WORDS.keys().isdisjoint(set(map(int, RequestCode)))


async def test_each_is_counted_and_logged_once_a_minute(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    unsupported = UnsupportedRequests()
    with caplog.at_level(logging.INFO):
        for code in (9999, 9999, 9998):
            refused(unsupported, code)
        assert [record.message.split(",")[0] for record in caplog.records] == [
            "request type 9999 not supported",
            "request type 9998 not supported",
        ]
        await trio.sleep(LOG_SECONDS)
        refused(unsupported, 9999)
        assert "3 times so far" in caplog.records[-1].message
    assert unsupported.counts == {9999: 3, 9998: 1}


async def test_codes_are_many_and_memory_is_not() -> None:
    unsupported = UnsupportedRequests()
    for code in range(10_000, 10_000 + CODES_MAX + 5):
        refused(unsupported, code)
    assert len(unsupported.counts) == CODES_MAX + 1
    assert unsupported.counts[OTHERS] == 5
