"""The expected strings are what RocketMQ 5.3.3's MessageDecoder printed for the same maps."""

from tandem.wire.java_map import NEW_MAP_CAPACITY, encode_in_java_order
from tandem.wire.message_properties import decode_properties

MANY = (
    "p50 p52 p51 p54 p53 p56 p55 p58 p57 p59 p61 p60 p63 p62 p65 p64 p67 p146 p66 p145 p69 p144"
    " p68 p143 p149 p148 p147 p70 p72 p71 p74 p73 p76 p75 p78 p77 p79 p81 p80 p83 p82 p85 p84 p87"
    " p86 p89 p88 p90 p92 p91 p94 p93 p96 p120 p95 p10 p98 p97 p12 p113 p11 p99 p112 p14 p111 p13"
    " p110 p16 p117 p15 p116 p18 p115 p17 p114 p19 p119 p118 p21 p20 p23 p102 p22 p101 p25 p100 p24"
    " p27 p106 p26 p105 p29 p104 p28 p103 p109 p108 p107 p0 p1 p2 p3 p4 p5 p6 p7 p8 p9 p30 p142"
    " p141 p32 p140 p31 p34 p135 p33 p134 p36 p133 p35 p132 p38 p139 p37 p138 p137 p39 p136 p41"
    " p131 p40 p130 p43 p42 p45 p124 p44 p123 p47 p122 p46 p121 p49 p128 p48 p127 p126 p125 p129"
)


def shown(properties: bytes) -> str:
    return properties.decode().replace("\x01", "=").replace("\x02", ";")


def test_a_delayed_message_has_its_properties_in_the_order_of_rocketmq() -> None:
    names = "KEYS UNIQ_KEY WAIT TAGS DELAY a CLUSTER MSG_REGION TRACE_ON REAL_TOPIC REAL_QID"
    properties = dict.fromkeys(names.split(), "x")
    assert shown(encode_in_java_order(properties)) == (
        "MSG_REGION=x;UNIQ_KEY=x;CLUSTER=x;DELAY=x;TAGS=x;KEYS=x;WAIT=x;a=x;TRACE_ON=x;"
        "REAL_TOPIC=x;REAL_QID=x;"
    )


def test_names_of_transactions_have_the_order_of_rocketmq() -> None:
    names = (
        "KEYS UNIQ_KEY WAIT TAGS DELAY a CLUSTER MSG_REGION TRACE_ON REAL_TOPIC REAL_QID TRAN_MSG"
        " PGROUP __transactionId__ TRANSACTION_CHECK_TIMES TRAN_PREPARED_QUEUE_OFFSET"
        " CHECK_IMMUNITY_TIME_IN_SECONDS RETRY_TOPIC ORIGIN_MESSAGE_ID"
    )
    found = decode_properties(encode_in_java_order(dict.fromkeys(names.split(), "x")))
    assert " ".join(found) == (
        "ORIGIN_MESSAGE_ID RETRY_TOPIC MSG_REGION UNIQ_KEY CLUSTER PGROUP __transactionId__ DELAY"
        " TAGS TRAN_MSG KEYS WAIT CHECK_IMMUNITY_TIME_IN_SECONDS a TRAN_PREPARED_QUEUE_OFFSET"
        " TRACE_ON TRANSACTION_CHECK_TIMES REAL_TOPIC REAL_QID"
    )


def test_a_map_that_outgrows_its_capacity_is_spread_anew() -> None:
    properties = {f"p{number}": str(number) for number in range(150)}
    assert list(decode_properties(encode_in_java_order(properties))) == MANY.split()


def test_a_new_map_is_smaller_than_a_parsed_one() -> None:
    properties = {"TAGS": "d", "WAIT": "true"}
    assert shown(encode_in_java_order(properties, NEW_MAP_CAPACITY)) == "WAIT=true;TAGS=d;"
    assert shown(encode_in_java_order(properties)) == "TAGS=d;WAIT=true;"


def test_a_value_that_was_read_may_hold_a_separator() -> None:
    data = b"a\x01b\x01c\x02"
    assert encode_in_java_order(decode_properties(data)) == data
