"""Calls that users sign, as RocketMQ's clients do."""

import hashlib
import hmac

DATE = "20261125T183838Z"


def signature(keys: tuple[str, str], date: str = DATE) -> dict[str, str]:
    name, secret = keys
    digest = hmac.new(secret.encode(), date.encode(), hashlib.sha1).hexdigest()
    said = f"MQv2-HMAC-SHA1 Credential={name}, SignedHeaders=x-mq-date-time, Signature={digest}"
    return {"authorization": said, "x_mq_date_time": date}
