"""Which sends of a Java producer are transactions, and what the history makes of them."""

from __future__ import annotations

from typing import Any

import pytest

from shalott.broker.rocket.remoting.command import ResponseCode
from shalott.clients.java.sends import (
    Attempt,
    fate_of_transaction,
)
from shalott.clients.rocketmq.transactions import Decision, Transactions
from shalott.core.errors import Indefinite
from shalott.core.op import Invocation
from shalott.core.rng import stream_key

pytestmark = pytest.mark.unit

SEND = Invocation(f="send", key="T/1", value=5)
OK = {"status": "SEND_OK", "topic": "T", "queue": 1, "offset": 8, "nanos": 2_500_000}
ACCEPTED = Attempt("T/1", ResponseCode.SUCCESS, "", 8)
UNANSWERED = Attempt("T/1")
BUSY = Attempt("T/1", ResponseCode.SYSTEM_BUSY, "[TIMEOUT_CLEAN_QUEUE]broker busy")
SLAVE_LATE = Attempt("T/1", ResponseCode.FLUSH_SLAVE_TIMEOUT, "", 8)

COMMIT_NOW = Decision(decision="commit", told="now")
COMMIT_LATER = Decision(decision="commit", told="later")
ROLLBACKS = [Decision(decision="rollback", told="now"), Decision(decision="rollback", told="later")]


def drawn(share: float, seed: int = 1, count: int = 4000) -> list[Decision | None]:
    transactions = Transactions(share, stream_key(seed, "log", "transactions"))
    return [transactions.of(value) for value in range(count)]


def test_the_share_that_was_asked_for_is_sent_as_transactions() -> None:
    assert drawn(0.0) == [None] * 4000
    assert None not in drawn(1.0)
    found = [decision for decision in drawn(0.5) if decision is not None]
    assert 1900 < len(found) < 2100
    assert 0.2 < sum(not one.commits for one in found) / len(found) < 0.3
    assert 0.45 < sum(one.told == "later" for one in found) / len(found) < 0.55


def test_a_seed_draws_the_same_decisions_and_another_seed_others() -> None:
    assert drawn(0.5) == drawn(0.5)
    assert drawn(0.5) != drawn(0.5, seed=2)


@pytest.mark.parametrize("decision", [COMMIT_NOW, COMMIT_LATER])
def test_what_is_stored_and_committed_is_ok_and_has_no_offset(decision: Decision) -> None:
    done = fate_of_transaction(SEND, OK, [ACCEPTED], decision)
    assert (done.type, done.key, done.offset) == ("ok", "T/1", None)
    assert done.extra == {"transaction": "commit", "told": decision.told, "library_ms": 2.5}


@pytest.mark.parametrize(
    ("said", "attempts"),
    [
        ({**OK, "status": "FLUSH_SLAVE_TIMEOUT"}, [SLAVE_LATE]),
        ({"error": "RemotingTimeoutException", "code": -1, "nanos": 1}, [UNANSWERED]),
    ],
)
def test_what_may_be_stored_may_be_committed_when_a_broker_asks(
    said: dict[str, Any], attempts: list[Attempt]
) -> None:
    with pytest.raises(Indefinite):
        fate_of_transaction(SEND, said, attempts, COMMIT_NOW)


@pytest.mark.parametrize("decision", ROLLBACKS)
@pytest.mark.parametrize("attempts", [[ACCEPTED], [UNANSWERED], [SLAVE_LATE]])
def test_what_is_rolled_back_has_failed_whatever_was_stored(
    decision: Decision, attempts: list[Attempt]
) -> None:
    done = fate_of_transaction(SEND, OK, attempts, decision)
    assert (done.type, done.error) == ("fail", "rolled back")
    assert done.extra == {"transaction": "rollback", "told": decision.told}


def test_what_is_rolled_back_and_was_refused_was_never_there() -> None:
    said = {"error": "MQBrokerException", "code": 2, "nanos": 1}
    done = fate_of_transaction(SEND, said, [BUSY], ROLLBACKS[0])
    assert done.error == "rolled back; nothing was stored"
