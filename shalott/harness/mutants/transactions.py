"""Mutants by hand of what RocketMQ's brokers keep of half messages, in each of their systems."""

from __future__ import annotations

from shalott.harness.mutants.by_hand import ByHand
from shalott.harness.mutants.mutant import Mutant

MODULE = "rocket.processor.transactions"
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
        "Transactions.end",
        "note-not-written",
        "result = await self._note(queue_offset)",
        "result = PutResult(PutStatus.PUT_OK, None)",
        "what is decided is noted in memory only, and a restarted master asks again",
    ),
    _dledger(
        MODULE,
        "Transactions.end",
        "noted-before-commit",
        """
        if outcome == COMMIT:
            result = await put(self.broker, [whole(stored, self.broker.host)])
        if result is None or result.status is PutStatus.PUT_OK:
            result = await self._note(queue_offset)
        """,
        """
        result = await self._note(queue_offset)
        if outcome == COMMIT:
            await put(self.broker, [whole(stored, self.broker.host)])
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
        "Transactions.end",
        "failed-note-decides",
        "result is None or result.status is not PutStatus.PUT_OK",
        "result is None",
        "a rollback or commit that could not be noted is not asked for again",
    ),
)
