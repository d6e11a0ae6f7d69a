"""Broker: what all requests of one broker have in common: its replica, its tables, its clients.

The files beside this one answer the requests; handlers.py has the table of codes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from shalott.broker.base.env import Env
from shalott.broker.base.tasks import Tasks
from shalott.broker.rocket.commitlog.api import Store
from shalott.broker.rocket.commitlog.replica import Replica
from shalott.broker.rocket.config import BrokerConfig
from shalott.broker.rocket.processor.acked import AckedEvents
from shalott.broker.rocket.processor.clients import Groups, QueueLocks
from shalott.broker.rocket.processor.half_messages import HalfMessages
from shalott.broker.rocket.processor.popped import Known
from shalott.broker.rocket.processor.stored_messages import stored_host
from shalott.broker.rocket.processor.tables import Tables
from shalott.broker.rocket.processor.topics import TIMER_TOPIC
from shalott.broker.rocket.remoting.command import Command
from shalott.broker.rocket.remoting.server import Caller

NS_PER_MS = 1_000_000
CLIENT_QUEUES = 4  # that producers ask for, of a topic that is made by being sent to


@dataclass
class Broker:
    """``address`` is the advertised one. ``topics_changed`` is called after every change of the
    topics that name servers should hear of.
    """

    env: Env
    config: BrokerConfig
    address: str
    replica: Replica
    tables: Tables
    acked: AckedEvents
    topics_changed: Callable[[], None]
    clients: Groups[Caller] = field(default_factory=Groups)
    locks: QueueLocks = field(default_factory=QueueLocks)
    started_ms: int = 0  # wall clock
    ha_address: str = ""  # where slaves connect, as they know it
    halves: HalfMessages = field(default_factory=HalfMessages)
    popped: Known = field(default_factory=Known)
    inherited_end: int = 0  # where the log ended when this broker became the master
    cold_limits: dict[str, int] = field(default_factory=dict)  # by group; nothing goes by them
    # What a request that is being handled stored, and can't say that it counts; by its task.
    uncertain: dict[object, list[Callable[[], None]]] = field(default_factory=dict)
    pushes: Tasks = field(default_factory=Tasks)  # under way

    @property
    def store(self) -> Store:
        return self.replica.store

    @property
    def host(self) -> tuple[str, int]:
        """As stored messages have it."""
        return stored_host(self.address)

    @property
    def is_master(self) -> bool:
        return self.replica.role == "master"

    @property
    def knows_its_log(self) -> bool:
        """Whether all that the log had when this broker became the master can be read: before, what
        was decided there of transactions and pops could be decided again."""
        return self.store.dispatched_offset >= self.inherited_end

    def learn_topics(self) -> bool:
        """See that every queue of the log has its topic; whether there was one without."""
        if self.env.has_bug("KB-RKT-36"):  # topic_config_not_replicated
            return False
        queues = min(CLIENT_QUEUES, self.config.default_queues)
        learnt = self.tables.learn(self.store.reader.queues(), queues)
        if learnt:
            self.topics_changed()
        return learnt

    def take_over(self) -> None:
        """This broker became the master: its tables follow from its log where they lag behind.

        No group has consumed what the log does not have, also if it told the former master so: its
        next messages would be skipped (KB-RKT-35, offset_not_truncated).
        """
        self.inherited_end = self.store.log.max_offset
        self.learn_topics()
        if self.env.has_bug("KB-RKT-35"):
            return
        self.tables.delayed.limit_timers(self.store.reader.queue_end(TIMER_TOPIC, 0))
        for key, queues in self.tables.offsets.items():
            topic, _, group = key.partition("@")
            for queue_id in list(queues):
                # Of the log: what is not confirmed again yet is there all the same.
                end = self.store.reader.queue_end(topic, queue_id)
                self.tables.limit_offset(group, topic, queue_id, end)

    def tell(self, caller: Caller, command: Command) -> None:
        """Push it to a client, and wait for nothing."""
        self.pushes.start(caller.push(command), "tell a client")

    def now_ms(self) -> int:
        """Of the clock that never goes back."""
        return self.env.clock.monotonic_ns() // NS_PER_MS

    def wall_ms(self) -> int:
        return self.env.clock.wall_ns() // NS_PER_MS
