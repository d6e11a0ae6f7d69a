"""Planted defects of the RocketMQ brokers, as consumer groups meet them."""

from __future__ import annotations

from collections.abc import Sequence

from tests.planted.consumers_shape import ConsumerMutant
from tests.world.mutants import Edit

_PROCESSOR = "shalott/broker/rocket/processor"
_RENEWED = "        lock.client_id, lock.updated_ms = client_id, now_ms\n        return True\n"


# Those that the run "group" shows, and of them those that each submission runs.
_IN_GROUP = (
    *("offset-one-too-far", "offset-goes-back", "pull-skips", "wrong-tags", "no-dead-letter"),
    *("retries-not-counted", "retry-lost", "sent-back-to-its-topic", "delayed-too-early"),
)
_IN_CI = ("offset-one-too-far",)


def _mutant(name: str, breaks: str, edits: Sequence[Edit], *checkers: str) -> ConsumerMutant:
    return ConsumerMutant(
        name=name,
        breaks=breaks,
        edits=tuple(edits),
        checkers=checkers,
        system="controller",
        workload="group",
        run="group" if name in _IN_GROUP else "",
        in_ci=name in _IN_CI,
    )


_LOCKS: tuple[ConsumerMutant, ...] = (
    _mutant(
        "lock-outlives-its-owner",
        "the lock of a member that died is nobody else's, ever",
        [
            Edit(
                f"{_PROCESSOR}/clients.py",
                "        if lock.client_id != client_id and"
                " now_ms - lock.updated_ms <= LOCK_EXPIRES_MS:\n",
                "        if lock.client_id != client_id:\n",
            )
        ],
        "group-liveness",
    ),
    _mutant(
        "lock-given-to-two",
        "a lock that somebody has is given to whoever asks",
        [
            Edit(
                f"{_PROCESSOR}/clients.py",
                "LOCK_EXPIRES_MS:\n            return False\n",
                "LOCK_EXPIRES_MS:\n            return True\n",
            )
        ],
        "orderly-exclusive",
    ),
    _mutant(
        "lock-lost-at-renewal",
        "who renews a lock loses it",
        [
            Edit(
                f"{_PROCESSOR}/clients.py",
                _RENEWED,
                "        if lock.client_id == client_id:\n"
                "            del self._locks[group, queue]\n"
                "            return False\n" + _RENEWED,
            )
        ],
        "orderly-exclusive",
        "orderly-order",
        "group-liveness",
    ),
    _mutant(
        "lock-expires-in-use",
        "a lock is over some seconds after it was given, renewed or not",
        [
            Edit(f"{_PROCESSOR}/clients.py", "LOCK_EXPIRES_MS = 60_000", "LOCK_EXPIRES_MS = 3_000"),
            Edit(
                f"{_PROCESSOR}/clients.py",
                _RENEWED,
                "        if lock.client_id != client_id:\n"
                "            lock.client_id, lock.updated_ms = client_id, now_ms\n"
                "        return True\n",
            ),
        ],
        "orderly-exclusive",
    ),
)

_OFFSETS: tuple[ConsumerMutant, ...] = (
    _mutant(
        "offsets-copied-once",
        "a slave copies its master's offsets once: as a master it sets groups far back",
        [
            Edit(
                f"{_PROCESSOR}/tables.py",
                "        self.offsets = {key: dict(queues)",
                "        if self.offsets:\n            return\n"
                "        self.offsets = {key: dict(queues)",
            )
        ],
        "offsets-forward",
        "group-redelivery",
    ),
    _mutant(
        "offset-one-too-far",
        "a committed offset is kept as the next one: whoever goes on from it skips a message",
        [
            Edit(
                f"{_PROCESSOR}/offsets.py",
                '        fields.number("commitOffset"),\n',
                '        fields.number("commitOffset") + 1,\n',
            )
        ],
        "group-not-skipped",
    ),
    _mutant(
        "offset-goes-back",
        "a commit now and then takes away what was committed before",
        [
            Edit(
                f"{_PROCESSOR}/offsets.py",
                '        fields.number("commitOffset"),\n',
                '        max(0, fields.number("commitOffset")\n'
                '            - (20 if fields.number("commitOffset") % 5 == 0 else 0)),\n',
            )
        ],
        "offsets-forward",
        "group-redelivery",
    ),
    _mutant(
        "begins-at-zero",
        "a new master answers offset 0 to a group that has one",
        [
            Edit(
                f"{_PROCESSOR}/offsets.py",
                "    if offset is not None:\n        return _offset(offset)\n",
                "    if offset is not None:\n"
                "        return _offset(offset if broker.replica.epoch < 2 else 0)\n",
            )
        ],
        "spurious-zero",
        "group-redelivery",
    ),
    _mutant(
        "pull-skips",
        "a pull that is full says to go on one further than it went",
        [
            Edit(
                f"{_PROCESSOR}/pull.py",
                "    next_offset = got.next_offset\n",
                "    next_offset = got.next_offset + (len(messages) > 4)\n",
            )
        ],
        "group-not-skipped",
    ),
    _mutant(
        "wrong-tags",
        "of the tags that a group wants only the first are sent",
        [
            Edit(
                f"{_PROCESSOR}/pull.py",
                "property_of(read_stored(message), TAGS) in tags)",
                "property_of(read_stored(message), TAGS) in tags[:1])",
            )
        ],
        "group-not-skipped",
        "tags",
    ),
    _mutant(
        "dead-member-stays",
        "a member whose connection is gone keeps its queues, and nobody is told",
        [
            Edit(
                f"{_PROCESSOR}/clients.py",
                "        for name in list(self._consumers):\n"
                "            changed |= self._leave(name, connection)\n"
                "        return changed\n\n    def expire",
                "        return changed\n\n    def expire",
            )
        ],
        "group-liveness",
    ),
)

_RETRIES: tuple[ConsumerMutant, ...] = (
    _mutant(
        "no-dead-letter",
        "what was retried too often is gone",
        [
            Edit(
                f"{_PROCESSOR}/send.py",
                "    if times >= limit or level < 0:\n",
                "    if times >= limit or level < 0:\n"
                "        return response(ResponseCode.SUCCESS)\n"
                "    if times >= limit or level < 0:\n",
            )
        ],
        "retry-count",
    ),
    _mutant(
        "retries-not-counted",
        "a message that is sent back counts no retry more",
        [
            Edit(
                f"{_PROCESSOR}/send.py",
                "        reconsume_times=times + 1,\n",
                "        reconsume_times=times,\n",
            )
        ],
        "retry-count",
    ),
    _mutant(
        "retry-lost",
        "one message in four that is sent back is answered and not stored",
        [
            Edit(
                f"{_PROCESSOR}/send.py",
                "    original = read_stored(data)\n",
                "    original = read_stored(data)\n"
                "    if original.queue_offset % 4 == 0:\n"
                "        return response(ResponseCode.SUCCESS)\n",
            )
        ],
        "retry-delay",
        "retry-count",
    ),
    _mutant(
        "retry-of-the-wrong-level",
        "a retry waits no longer than half of its level",
        [
            Edit(
                f"{_PROCESSOR}/delays.py",
                "        if stored_ms + 1000 * LEVELS_S",
                '        share = 500 if "RETRY_TOPIC" in waiting.message.properties else 1000\n'
                "        if stored_ms + share * LEVELS_S",
            )
        ],
        "retry-delay",
    ),
    _mutant(
        "sent-back-to-its-topic",
        "what is sent back is stored in the topic that it came from, for every group",
        [
            Edit(
                f"{_PROCESSOR}/send.py",
                "        topic, level = retry_topic(group), level or FIRST_RETRY_LEVEL + times\n",
                "        topic = original.message.topic\n"
                "        level = level or FIRST_RETRY_LEVEL + times\n",
            )
        ],
        "retry-delay",
        "group-redelivery",
        "group-deliveries",
    ),
    _mutant(
        "delayed-too-early",
        "a delayed message is delivered after half of its delay",
        [
            Edit(
                f"{_PROCESSOR}/delays.py",
                "stored_ms + 1000 * LEVELS_S[level - 1] >",
                "stored_ms + 500 * LEVELS_S[level - 1] >",
            )
        ],
        "delayed",
        "retry-delay",
    ),
    _mutant(
        "delayed-never-after-failover",
        "a new master delivers no delayed message",
        [
            Edit(
                f"{_PROCESSOR}/delays.py",
                "        has_delays = broker.is_master and _has_delays(broker)\n",
                "        has_delays = (broker.is_master and broker.replica.epoch < 2\n"
                "                      and _has_delays(broker))\n",
            )
        ],
        "delayed",
        "retry-delay",
        "group-liveness",
    ),
)

ROCKET: tuple[ConsumerMutant, ...] = (*_LOCKS, *_OFFSETS, *_RETRIES)
