"""Mutants by hand of RocketMQ's transactions and popped messages, in each of its systems."""

from __future__ import annotations

from shalott.harness.mutants.by_hand import ByHand
from shalott.harness.mutants.mutant import Mutant

MODULE, FLIGHTS = "rocket.processor.transactions", "rocket.processor.flights"
_master_slave, _dledger, _controller = (
    ByHand(name) for name in ("master-slave", "dledger", "controller")
)

TRANSACTIONS: tuple[Mutant, ...] = (
    _dledger(
        MODULE,
        "Transactions._look",
        "notes-not-read",
        "known.decided[int(number)] = None",
        "pass",
        "a new master takes what its predecessor decided for open, and decides it again",
    ),
    _controller(
        MODULE,
        "Transactions._load",
        "notes-of-before-passed",
        "self._known.ops_end = tables.offset(GROUP, OP_TOPIC, QUEUE) or 0",
        "self._known.ops_end = self.broker.store.reader.queue_range(OP_TOPIC, QUEUE)[1]",
        "a new master reads the notes from the end on, and decides again what was decided",
    ),
    _controller(
        MODULE,
        "Transactions._load",
        "knowledge-outlives-mastership",
        "self._known.epoch != self.broker.replica.epoch",
        "self._known.epoch is None",
        "a master goes on with what it knew of transactions in an earlier epoch",
    ),
    _dledger(
        MODULE,
        "Transactions._note_offsets",
        "open-worked-off",
        "done = min(self._known.waiting, default=self._known.halves_end)",
        "done = self._known.halves_end",
        "half messages count as worked off while they wait, so that their end is refused",
    ),
    _controller(
        MODULE,
        "Transactions._ask",
        "asked-once",
        "waiting.asked += 1",
        "self._known.waiting.pop(queue_offset, None)",
        "a producer that does not know yet is never asked again",
    ),
    _master_slave(
        MODULE,
        "Transactions._store_end",
        "note-not-written",
        "result = await self._note(queue_offset)",
        "result = PutResult(PutStatus.PUT_OK, None)",
        "what is decided is noted in memory only, and a restarted master asks again",
    ),
    _dledger(
        MODULE,
        "Transactions._store_end",
        "noted-before-commit",
        """
        if message is not None:
            result = await put(self.broker, [message])
            if result.status is not PutStatus.PUT_OK:
                return result
        result = await self._note(queue_offset)
        """,
        """
        result = await self._note(queue_offset)
        if message is not None:
            await put(self.broker, [message])
        """,
        "a commit is noted before the message is stored, and lost when that fails",
    ),
    _master_slave(
        MODULE,
        "end_transaction",
        "unknown-is-rollback",
        """
        if outcome not in (COMMIT, ROLLBACK):
            return response(ResponseCode.SUCCESS)
        """,
        "",
        "a producer that does not know yet has rolled back",
    ),
    _master_slave(
        MODULE,
        "Transactions._store_end",
        "failed-note-decides",
        """
        if result.status is PutStatus.PUT_OK:
            known.decided[queue_offset] = None
            known.waiting.pop(queue_offset, None)
        """,
        """
        known.decided[queue_offset] = None
        known.waiting.pop(queue_offset, None)
        """,
        "a rollback or commit that could not be noted is not asked for again",
    ),
    _master_slave(
        FLIGHTS,
        "Flights._write",
        "popped-before-stored",
        "result.status is not PutStatus.PUT_OK or result.stage is None",
        "result.stage is None",
        "a pop is answered, and an acknowledgement taken, before it is stored for good",
    ),
    _dledger(
        FLIGHTS,
        "Flights._apply",
        "group-set-back",
        """
        if (tables.offset(group, topic, queue_id) or 0) < ck.next:
            tables.put_offset(group, topic, queue_id, ck.next)
        """,
        "",
        "how far a group came by popping is forgotten",
    ),
    _controller(
        FLIGHTS,
        "Flights._load",
        "flights-of-before-passed",
        "self._known.end = self.broker.tables.offset(GROUP, self._topic, QUEUE) or 0",
        """
        self._known.end = self.broker.store.reader.queue_range(self._topic, QUEUE)[1]
        """,
        "a new master knows nothing of what its predecessor has given",
    ),
    _dledger(
        FLIGHTS,
        "Flights._revive_due",
        "flights-worked-off",
        """
        done = min(
            (one.record for each in self._known.flights.values() for one in each.values()),
            default=self._known.end,
        )
        """,
        "done = self._known.end",
        "check points count as worked off while their messages are out",
    ),
    _controller(
        FLIGHTS,
        "Flights._store_again",
        "copy-not-looked-at",
        "return (await put(self.broker, [copy])).status is PutStatus.PUT_OK",
        """
        await put(self.broker, [copy])
        return True
        """,
        "what is due counts as given back, be it stored or not",
    ),
    _controller(
        FLIGHTS,
        "Flights._of_pop",
        "busy-acknowledged",
        "flight.pop_ms == pop_ms and not flight.is_busy",
        "flight.pop_ms == pop_ms",
        "a message is acknowledged while it is being given back",
    ),
    _master_slave(
        FLIGHTS,
        "Flights._apply",
        "acks-not-heeded",
        "del flights[offset]",
        "pass",
        "acknowledgements are stored and not heeded, so what is done with comes again",
    ),
)
