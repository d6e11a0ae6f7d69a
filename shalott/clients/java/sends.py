"""What became of a send that a library may have made several times, and of a transaction.

The Java producer sends again by itself what was refused or not answered, and then to another queue
of the topic. What it says in the end is one thing; what was on the wire (cpp/tap.py) is what can
have been stored. So:

    ok      it says SEND_OK, and a broker had said so of that queue and offset. What came of earlier
            attempts does not matter: the message was acknowledged. It may be stored twice
    fail    it throws any error, and nothing was sent, or every attempt was answered by a
            refusal after which nothing is stored. Nothing is sent of it any more, either
    info    anything else

``attempts`` in a send's ``extra``: how often it went out, where it was not once. ``sent``: how many
of these may have been stored: a message found at no more places than that is the client's doing.

Transactions (clients/rocketmq/transactions.py) are ended without an answer:

    ok      commit, and the library says SEND_OK, as a broker had said. From then on the message is
            the brokers': it must come to consumers, sooner or later. Its offset is not known
    fail    rollback, in any case: no consumer may ever see it
    info    commit, and anything else. Of a message that is not SEND_OK the library itself says
            rollback, and a producer that is asked later says commit

Upstream's manual (its Transaction Example, "Usage Constraint") says that a transactional message
"maybe checked or consumed more than once". A second copy is reported, as ``committed-twice``, and
breaks nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from shalott.broker.rocket.remoting.command import Command, RequestCode, ResponseCode
from shalott.clients.cpp.process import LibraryLine
from shalott.clients.cpp.tap import Cut
from shalott.clients.rocketmq.log_client import fate_of_send as fate_of_one
from shalott.clients.rocketmq.log_client import log_offset_of
from shalott.clients.rocketmq.rocket_client import STORED_CODES, Refused
from shalott.clients.rocketmq.transactions import Decision
from shalott.core.errors import Definite, Indefinite
from shalott.core.message_body import decode_body
from shalott.core.op import Completion, Invocation

SENDS = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2)
PULLS = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
SEND_OK = "SEND_OK"


@dataclass(slots=True)
class Attempt:
    """One request. ``code``: of the answer; None without one. ``broker``: who was asked."""

    key: str  # the queue that it was sent to
    code: int | None = None
    remark: str = ""
    offset: int | None = None
    broker: str = ""
    message_id: str = ""

    @property
    def is_refused(self) -> bool:
        """Nothing is stored of it, and nothing will be."""
        if self.code is None or self.code in STORED_CODES:
            return False
        return isinstance(fate_of_one(Refused(self.code, self.remark)), Definite)


@dataclass(slots=True)
class Attempts:
    """Listens to the tap of one client: its sends by the message's value, and where brokers moved
    its reading. What was ``settled`` is kept from going out again."""

    moved: dict[str, dict[int, int]] = field(default_factory=dict)  # by queue: from where to where
    empty: dict[str, int] = field(default_factory=dict)  # by queue: there is nothing from here on
    _by_value: dict[int, list[Attempt]] = field(default_factory=dict)
    _asked: dict[int, Attempt] = field(default_factory=dict)  # by id(request)
    _settled: dict[int, None] = field(default_factory=dict)

    def asked(self, behind: str, request: Command) -> None:
        if request.code not in SENDS:
            return
        value = decode_body(request.body)
        if value is None:
            return
        if value in self._settled:
            raise Cut
        attempt = Attempt(key_of_send(request), broker=behind)
        self._by_value.setdefault(value, []).append(attempt)
        self._asked[id(request)] = attempt

    def answered(self, behind: str, request: Command, answer: Command) -> None:
        attempt = self._asked.pop(id(request), None)
        if attempt is not None:
            attempt.code, attempt.remark = answer.code, answer.remark
            attempt.message_id = answer.ext.get("msgId", "")
            if "queueOffset" in answer.ext:
                attempt.offset = int(answer.ext["queueOffset"])
        elif request.code in PULLS:
            self._pulled(request, answer)

    def unanswered(self, behind: str, request: Command) -> None:
        self._asked.pop(id(request), None)

    def settle(self, value: int) -> list[Attempt]:
        """What was sent of it. From now on nothing is."""
        self._settled[value] = None
        return self._by_value.pop(value, [])

    def _pulled(self, request: Command, answer: Command) -> None:
        key = f"{request.ext.get('topic', '')}/{request.ext.get('queueId', '')}"
        offset = int(request.ext.get("queueOffset", -1))
        if answer.code == ResponseCode.PULL_OFFSET_MOVED:
            self.moved.setdefault(key, {})[offset] = int(answer.ext.get("nextBeginOffset", -1))
        elif answer.code == ResponseCode.PULL_NOT_FOUND:
            self.empty[key] = offset
        else:
            self.empty.pop(key, None)


def key_of_send(request: Command) -> str:
    """The queue that a send names."""
    ext = request.ext
    if request.code == RequestCode.SEND_MESSAGE_V2:
        return f"{ext.get('b', '')}/{ext.get('e', '')}"
    return f"{ext.get('topic', '')}/{ext.get('queueId', '')}"


def fate_of_send(
    invocation: Invocation, said: LibraryLine, attempts: Sequence[Attempt]
) -> Completion:
    """By what the library says (a line ``sent`` of the bridge, or nothing but an ``error``) and
    what was on the wire. Raises Definite, Indefinite."""
    extra = dict(invocation.extra or {})
    if len(attempts) > 1:
        stored = sum(not attempt.is_refused for attempt in attempts)
        extra |= {"attempts": len(attempts), "sent": stored}
    if "nanos" in said:
        extra["library_ms"] = round(int(said["nanos"]) / 1e6, 3)
    if "status" not in said:
        words = str(said.get("error", "the library says nothing"))
    elif said["status"] != SEND_OK:
        words = str(said["status"])
    else:
        key = f"{said['topic']}/{said['queue']}"
        accepted = _accepted(key, int(said["offset"]), attempts)
        if accepted is not None:
            offset = None if "delay" in extra else int(said["offset"])
            extra |= place_in_log(accepted)
            return Completion(type="ok", key=key, offset=offset, extra=extra)
        words = f"{SEND_OK} at offset {said['offset']} of {key}, which no broker had said"
    told = f"{words}; sent {_places(attempts)}" if attempts else f"nothing was sent: {words}"
    if "status" not in said and all(attempt.is_refused for attempt in attempts):
        raise Definite(told)
    raise Indefinite(told, extra=extra)


def _accepted(key: str, offset: int, attempts: Sequence[Attempt]) -> Attempt | None:
    """The one that a broker said it of."""
    for one in attempts:
        if one.key == key and one.code == ResponseCode.SUCCESS and one.offset == offset:
            return one
    return None


def place_in_log(attempt: Attempt) -> dict[str, object]:
    """Who acknowledged it, and where in that broker's log it lies."""
    told: dict[str, object] = {"broker": attempt.broker} if attempt.broker else {}
    return told | log_offset_of(attempt.message_id)


def _places(attempts: Sequence[Attempt]) -> str:
    """As "to T/0 (unanswered) and to T/1 (2)"."""
    told = ("unanswered" if one.code is None else str(one.code) for one in attempts)
    return " and ".join(f"to {one.key} ({how})" for one, how in zip(attempts, told, strict=True))


ROLLED_BACK = "rolled back"


def fate_of_transaction(
    invocation: Invocation, said: LibraryLine, attempts: Sequence[Attempt], decision: Decision
) -> Completion:
    """As above. Raises Definite, Indefinite."""
    words = {"transaction": decision.decision, "told": decision.told}
    extra = {**(invocation.extra or {}), **words}
    if not decision.commits:
        stored = any(not attempt.is_refused for attempt in attempts)
        told = ROLLED_BACK if stored else f"{ROLLED_BACK}; nothing was stored"
        return Completion(type="fail", error=told, extra=extra)
    asked = msgspec.structs.replace(invocation, extra=extra)
    done = fate_of_send(asked, said, attempts)
    return msgspec.structs.replace(done, offset=None)
