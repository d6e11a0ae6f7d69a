"""What a Java producer says of a send and what was on the wire, and what the history makes of it.

Saying fail of what may be stored is the gravest error a harness can make: each row here that may be
stored must be unknown, for all that the library throws.
"""

from __future__ import annotations

from typing import Any

import pytest

from shalott.broker.rocket.remoting.command import Command, RequestCode, ResponseCode, response
from shalott.clients.cpp.tap import Cut
from shalott.clients.java.client import before_move
from shalott.clients.java.sends import Attempt, Attempts, fate_of_send
from shalott.core.errors import Definite, Indefinite
from shalott.core.message_body import encode_body
from shalott.core.op import Invocation

pytestmark = pytest.mark.unit

BROKER = "127.0.0.1:10911"
SEND = Invocation(f="send", key="T/1", value=5)
OK = {"status": "SEND_OK", "topic": "T", "queue": 1, "offset": 8, "nanos": 2_500_000}

ACCEPTED = Attempt("T/1", ResponseCode.SUCCESS, "", 8)
UNANSWERED = Attempt("T/1")
BUSY = Attempt("T/1", ResponseCode.SYSTEM_BUSY, "[TIMEOUT_CLEAN_QUEUE]broker busy")
NO_TOPIC = Attempt("T/1", ResponseCode.TOPIC_NOT_EXIST, "topic[T] not exist")
NO_PERMISSION = Attempt("T/1", ResponseCode.NO_PERMISSION, "the broker is not writable")
ILLEGAL = Attempt("T/1", ResponseCode.MESSAGE_ILLEGAL, "the message body is too long")
NOT_SERVING = Attempt("T/1", ResponseCode.SERVICE_NOT_AVAILABLE, "service not available now")
SYSTEM_ERROR = Attempt("T/1", ResponseCode.SYSTEM_ERROR, "unknown error")
DISK_LATE = Attempt("T/1", ResponseCode.FLUSH_DISK_TIMEOUT, "", 8)
SLAVE_LATE = Attempt("T/1", ResponseCode.FLUSH_SLAVE_TIMEOUT, "", 8)
NO_SLAVE = Attempt("T/1", ResponseCode.SLAVE_NOT_AVAILABLE, "", 8)


def status(name: str) -> dict[str, Any]:
    return {**OK, "status": name}


def thrown(error: str, code: int = -1) -> dict[str, Any]:
    return {"error": error, "code": code, "nanos": 1}


def test_what_was_acknowledged_has_its_queue_and_offset() -> None:
    done = fate_of_send(Invocation(f="send", key="T/0", value=5), OK, [ACCEPTED])
    assert (done.type, done.key, done.offset) == ("ok", "T/1", 8)
    assert done.extra == {"library_ms": 2.5}


def test_delayed_send_has_no_offset() -> None:
    delayed = Invocation(f="send", key="T/1", value=5, extra={"delay": 2})
    done = fate_of_send(delayed, OK, [ACCEPTED])
    assert done.offset is None and done.extra == {"delay": 2, "library_ms": 2.5}


@pytest.mark.parametrize(
    ("before", "sent"), [([UNANSWERED], 2), ([BUSY], 1), ([BUSY, UNANSWERED, SLAVE_LATE], 3)]
)
def test_acknowledged_at_a_later_attempt(before: list[Attempt], sent: int) -> None:
    """It must not be lost, and may lie there as often as it may have been stored."""
    done = fate_of_send(SEND, OK, [*before, ACCEPTED])
    assert done.type == "ok" and done.extra is not None
    assert (done.extra["attempts"], done.extra["sent"]) == (len(before) + 1, sent)


@pytest.mark.parametrize(
    "said",
    [
        thrown("RemotingTooMuchRequestException: sendDefaultImpl call timeout"),
        thrown("MQClientException: No route info of this topic: T", 10005),
        thrown("MQClientException: No name server address", 10004),
        thrown("MQClientException: The broker[b] not exist", 10001),
        thrown("RemotingConnectException: connect to 127.0.0.1:1 failed"),
        # The library thinks that it sent it; the tap never had it, and lets it pass no more.
        thrown("RemotingTimeoutException: wait response on the channel timeout, 3000(ms)"),
    ],
)
def test_what_never_went_out_has_failed(said: dict[str, Any]) -> None:
    with pytest.raises(Definite, match="nothing was sent"):
        fate_of_send(SEND, said, [])


@pytest.mark.parametrize(
    "attempts",
    [[BUSY], [NO_TOPIC], [NO_PERMISSION], [ILLEGAL], [BUSY, NO_TOPIC, BUSY]],
    ids=["busy", "no-topic", "no-permission", "illegal", "three"],
)
def test_what_every_broker_refused_before_storing_has_failed(attempts: list[Attempt]) -> None:
    with pytest.raises(Definite, match="to T/1"):
        fate_of_send(SEND, thrown("MQBrokerException: CODE: 2", 2), attempts)


@pytest.mark.parametrize(
    ("said", "attempts"),
    [
        (status("FLUSH_DISK_TIMEOUT"), [DISK_LATE]),
        (status("FLUSH_SLAVE_TIMEOUT"), [SLAVE_LATE]),
        (status("SLAVE_NOT_AVAILABLE"), [NO_SLAVE]),
        (thrown("RemotingTimeoutException: wait response timeout"), [UNANSWERED]),
        (thrown("RemotingSendRequestException: send request failed"), [UNANSWERED]),
        (thrown("MQBrokerException: CODE: 14", 14), [NOT_SERVING]),
        (thrown("MQBrokerException: CODE: 1", 1), [SYSTEM_ERROR]),
        # An exception after retries: any attempt may have been stored.
        (thrown("MQClientException: Send [3] times, still failed"), [UNANSWERED, BUSY, BUSY]),
        (thrown("MQClientException: Send [3] times, still failed"), [BUSY, UNANSWERED, BUSY]),
        (thrown("MQClientException: Send [2] times, still failed"), [SLAVE_LATE, NO_TOPIC]),
        # The library gave up before the answer came.
        (thrown("RemotingTimeoutException: wait response timeout"), [ACCEPTED]),
        (thrown("the JVM of the Java clients ended (137)"), [UNANSWERED]),
        (thrown("the JVM of the Java clients ended (137)"), [ACCEPTED]),
        # It says what no broker had said, or of another place.
        (OK, []),
        (OK, [UNANSWERED]),
        (OK, [BUSY]),
        (OK, [Attempt("T/1", ResponseCode.SUCCESS, "", 9)]),
        (OK, [Attempt("T/0", ResponseCode.SUCCESS, "", 8)]),
        (OK, [SLAVE_LATE]),
    ],
)  # fmt: skip
def test_what_may_be_stored_is_unknown(said: dict[str, Any], attempts: list[Attempt]) -> None:
    with pytest.raises(Indefinite) as raised:
        fate_of_send(SEND, said, attempts)
    extra = raised.value.extra or {}
    if len(attempts) > 1:
        assert extra["sent"] == sum(not one.is_refused for one in attempts)


@pytest.mark.parametrize(
    ("message_id", "told"),
    [
        ("7F00000100002A9F0000000000000100", {"broker": BROKER, "log_offset": 256}),
        ("no id", {"broker": BROKER}),
        ("", {"broker": BROKER}),
    ],
)
def test_who_acknowledged_it_and_where_it_lies_is_told(
    message_id: str, told: dict[str, Any]
) -> None:
    attempt = Attempt("T/1", ResponseCode.SUCCESS, "", 8, BROKER, message_id)
    extra = fate_of_send(SEND, OK, [UNANSWERED, attempt]).extra or {}
    assert {key: extra[key] for key in told} == told
    assert ("log_offset" in extra) == ("log_offset" in told)


# -- what is seen on the wire ----------------------------------------------------------------------


def send(value: int, queue: int = 1) -> Command:
    ext = {"b": "T", "e": str(queue), "a": "producers"}
    return Command(code=RequestCode.SEND_MESSAGE_V2, ext=ext, body=encode_body(value, 32))


def test_each_attempt_is_seen_with_its_answer() -> None:
    seen = Attempts()
    first, second, third = send(5), send(5, 2), send(6)
    for request in (first, second, third):
        seen.asked(BROKER, request)
    seen.unanswered(BROKER, first)
    done = response(ResponseCode.SUCCESS, ext={"queueOffset": "8"})
    seen.answered(BROKER, second, done)
    seen.answered(BROKER, third, response(ResponseCode.SYSTEM_BUSY, "no"))
    assert seen.settle(5) == [
        Attempt("T/1", broker=BROKER),
        Attempt("T/2", ResponseCode.SUCCESS, "", 8, BROKER),
    ]
    assert seen.settle(6) == [Attempt("T/1", ResponseCode.SYSTEM_BUSY, "no", None, BROKER)]


def test_what_is_settled_does_not_go_out_any_more() -> None:
    """Or what was said to have failed could still be stored."""
    seen = Attempts()
    assert seen.settle(5) == []
    with pytest.raises(Cut):
        seen.asked(BROKER, send(5))
    seen.asked(BROKER, send(6))


def test_where_a_reader_was_moved_is_seen() -> None:
    seen = Attempts()
    ext = {"topic": "T", "queueId": "1", "queueOffset": "30"}
    pull = Command(code=RequestCode.LITE_PULL_MESSAGE, ext=ext)
    seen.asked(BROKER, pull)
    moved = response(ResponseCode.PULL_OFFSET_MOVED, ext={"nextBeginOffset": "9"})
    seen.answered(BROKER, pull, moved)
    assert seen.moved == {"T/1": {30: 9}}
    seen.answered(BROKER, pull, response(ResponseCode.PULL_NOT_FOUND))
    assert seen.empty == {"T/1": 30}


RECORDS: list[tuple[int, int | None]] = [(28, 1), (29, 2), (9, 3), (10, 4)]


def test_records_behind_a_move_are_left_for_the_next_poll() -> None:
    assert before_move(28, RECORDS, {30: 9}) == RECORDS[:2]
    assert before_move(30, RECORDS[2:], {30: 9}) == []


def test_a_gap_that_no_broker_told_of_is_kept() -> None:
    assert before_move(28, RECORDS, {}) == RECORDS
    assert before_move(20, RECORDS, {30: 9, 25: 3}) == RECORDS[:2]
