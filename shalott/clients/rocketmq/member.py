"""Member: one consumer of a group, as RocketMQ's DefaultMQPushConsumer is one.

It says to all brokers of its topics that it is there (heartbeats), asks the master who else is,
takes its share of the queues (RebalanceImpl), pulls and consumes them (consumption.py), and
commits what was consumed (RemoteBrokerOffsetStore). It leaves by finishing what its listener works
on, committing and unregistering; it dies by dropping its connections without a word.

Apart from upstream: offsets are asked for and committed at masters only, commits await their
answers, and an orderly queue whose lock is another member's is given up at once and begun anew from
the committed offset.
"""

from __future__ import annotations

import asyncio

from shalott.broker.base.tasks import Tasks
from shalott.broker.rocket.remoting.command import Command, RequestCode
from shalott.clients.rocketmq import group_requests as requests
from shalott.clients.rocketmq.consumption import (
    GONE,
    Consumption,
    Means,
    Membership,
    allocate_averagely,
    fate_of,
)
from shalott.clients.rocketmq.rocket_client import Queue, RocketClient, RocketError, Routes
from shalott.core.op import Completion

FIRST_AGAIN_S = 1.0  # until some broker has taken the first heartbeat


class Member:
    """Begins at once, in the background, and ends by ``leave`` or by ``end``."""

    def __init__(self, of: Membership) -> None:
        settings, group = of.settings, of.group
        client = RocketClient(
            [of.name_server],
            dial=of.dial,
            group=group.name,
            timeout_ms=settings.timeout_ms,
            on_push=self._pushed,
        )
        self.group = group
        self.name = of.name
        self._means = Means(
            name=of.name,
            group=group,
            settings=settings,
            client=client,
            routes=Routes(client, settings.route_poll_ms),
            listener=of.listener,
            rows=of.rows,
            slots=asyncio.Semaphore(settings.parallel),
        )
        self._client = client
        self._queues: dict[Queue, Consumption] = {}
        self._local: dict[Queue, int] = {}  # of a broadcast: how far it came
        self._locks = QueueLocks(self._means)
        self._rebalance_now = asyncio.Event()
        self._tasks = Tasks(name=f"member {self.name}")
        self._ended = False
        self._row = of.rows.begin("member", group.name, self._words)
        self._tasks.start(self._live())

    @property
    def _words(self) -> dict[str, object]:
        group = self.group
        return {
            **self._means.words,
            "broadcast": group.broadcast,
            "orderly": group.orderly,
            "tags": list(group.tags),
        }

    # -- its end -----------------------------------------------------------------------------------

    async def leave(self) -> None:
        """Finish what the listener works on, commit, unlock, unregister. May be cancelled: then
        ``end`` does the rest."""
        await self._tasks.end()
        held = list(self._queues.values())
        await asyncio.gather(*(one.stop() for one in held))
        await self._commit_all()
        await self._locks.unlock_all()
        for one in held:
            await one.end("left")
        self._queues.clear()
        try:
            brokers = await self._means.routes.brokers(requests.topics_of(self.group))
            for address in brokers:
                await requests.unregister(self._client, address, self.name, self.group.name)
        except RocketError:
            pass  # its connections end anyhow
        await self.end("left")

    async def end(self, ended: str) -> None:
        """Drop everything. Does nothing the second time."""
        if self._ended:
            return
        self._ended = True
        await self._tasks.end()
        for one in self._queues.values():
            await one.end(ended)
        self._queues.clear()
        self._means.rows.end(self._row, Completion(type="ok", extra=self._words | {"ended": ended}))
        await self._client.close()

    # -- its life ----------------------------------------------------------------------------------

    async def _live(self) -> None:
        while True:
            if await self._beat():
                break
            await asyncio.sleep(FIRST_AGAIN_S)
        self._tasks.start(self._keep_beating())
        if not self.group.broadcast:
            self._tasks.start(self._keep_committing())
        if self.group.orderly:
            self._tasks.start(self._keep_locking())
        interval_s = self._means.settings.rebalance_ms / 1000
        while True:
            self._rebalance_now.clear()
            for topic in requests.topics_of(self.group):
                await self._rebalance(topic)
            try:
                async with asyncio.timeout(interval_s):
                    await self._rebalance_now.wait()
            except TimeoutError:
                pass

    async def _keep_beating(self) -> None:
        while True:
            await asyncio.sleep(self._means.settings.heartbeat_ms / 1000)
            await self._beat()

    async def _beat(self) -> bool:
        """Whether any broker took it."""
        try:
            brokers = await self._means.routes.brokers(requests.topics_of(self.group))
        except RocketError:
            return False
        taken = await asyncio.gather(*(self._beat_at(address) for address in brokers))
        return any(taken)

    async def _beat_at(self, address: str) -> bool:
        try:
            await requests.heartbeat(self._client, address, self.name, self.group)
        except RocketError:
            return False
        return True

    def _pushed(self, address: str, command: Command) -> None:
        if self._ended:
            return
        if command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            self._rebalance_now.set()
        elif command.code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET:
            topic = command.ext.get("topic", "")
            self._tasks.start(self._reset(topic, requests.reset_offsets(command)))

    # -- rebalance ---------------------------------------------------------------------------------

    async def _rebalance(self, topic: str) -> None:
        """As long as a server does not answer, nothing changes."""
        try:
            queues = await self._means.routes.queues(topic)
            mine = queues if self.group.broadcast else await self._share(topic, queues)
        except RocketError:
            self._means.routes.forget(topic)
            return
        for queue, one in list(self._queues.items()):
            if queue.topic == topic and queue not in mine and not one.dropped:
                self._tasks.start(self._give_up(queue, one, "rebalanced"))
        for queue in mine:
            if queue not in self._queues:
                await self._take(queue)

    async def _share(self, topic: str, queues: list[Queue]) -> list[Queue]:
        """Raises RocketError."""
        asked = (await self._means.routes.brokers([topic]))[0]
        members = await requests.consumer_ids(self._client, asked, self.group.name)
        return allocate_averagely(self.name, members, queues)

    async def _take(self, queue: Queue) -> None:
        """Begin to consume it, if that can be begun."""
        lock_s = asyncio.get_running_loop().time()
        if self.group.orderly and not (await self._locks.lock([queue])).get(queue):
            return
        if self.group.broadcast:
            start, why = self._local.get(queue, 0), "local" if queue in self._local else "first"
        else:
            try:
                address = await self._means.routes.address(queue)
                committed = await self._client.consumer_offset(address, queue)
            except RocketError:
                self._means.routes.forget(queue.topic)
                return
            start, why = (0, "first") if committed is None else (committed, "committed")
        self._queues[queue] = Consumption(self._means, queue, start, why, self._lost, lock_s)

    def _lost(self, one: Consumption) -> None:
        if not one.dropped:
            self._tasks.start(self._give_up(one.queue, one, "lock-lost"))

    async def _give_up(self, queue: Queue, one: Consumption, ended: str) -> None:
        """Commit what was consumed before, wait for the listener, unlock."""
        one.dropped = True
        if self.group.broadcast:
            self._local[queue] = one.pulled.committable
        else:
            await _commit(self._means, one, one.committable)
        await one.drop()
        if ended != "lock-lost":
            await self._locks.unlock([queue])
        await one.end(ended)
        self._queues.pop(queue, None)
        self._rebalance_now.set()

    async def _reset(self, topic: str, offsets: dict[int, int]) -> None:
        """The operator set the group's offsets: go there, and tell the broker."""
        for queue, one in list(self._queues.items()):
            if queue.topic != topic or queue.queue_id not in offsets or one.dropped:
                continue
            await one.drop()
            offset = offsets[queue.queue_id]
            if self.group.broadcast:
                self._local[queue] = offset
            else:
                await _commit(self._means, one, offset)
            await one.end("rebalanced")
            self._queues.pop(queue, None)
        self._rebalance_now.set()

    # -- locks -------------------------------------------------------------------------------------

    async def _keep_locking(self) -> None:
        while True:
            await asyncio.sleep(self._means.settings.lock_ms / 1000)
            queues = [queue for queue, one in self._queues.items() if not one.dropped]
            asked_s = asyncio.get_running_loop().time()
            held = await self._locks.lock(queues)
            for queue, is_held in held.items():
                one = self._queues.get(queue)
                if one is None or one.dropped:
                    continue
                if is_held:
                    one.lock_s = asked_s
                else:
                    self._lost(one)

    # -- offsets -----------------------------------------------------------------------------------

    async def _keep_committing(self) -> None:
        while True:
            await asyncio.sleep(self._means.settings.persist_ms / 1000)
            await self._commit_all()

    async def _commit_all(self) -> None:
        if self.group.broadcast:
            return
        for one in list(self._queues.values()):
            if not one.dropped:
                await _commit(self._means, one, one.committable)

    def stands_at(self, key: str) -> int | None:
        """How far it has consumed a queue, committed or not; None if it does not have
        it."""
        found = [one.pulled.committable for one in self._queues.values() if one.key == key]
        return found[0] if found else None


class QueueLocks:
    """An orderly member's locks on queues, which their masters keep."""

    def __init__(self, means: Means) -> None:
        self._means = means
        self._asked: dict[Queue, None] = {}  # held, perhaps

    async def unlock_all(self) -> None:
        await self.unlock(list(self._asked))

    async def lock(self, queues: list[Queue]) -> dict[Queue, bool]:
        """Whether each is held, as its master answers; those without an answer are left out."""
        answered: dict[Queue, bool] = {}
        by_broker: dict[str, list[Queue]] = {}
        for queue in queues:
            by_broker.setdefault(queue.broker_name, []).append(queue)
            self._asked[queue] = None
        for own in by_broker.values():
            rows = [self._means.rows.begin("lock", _key(one), self._means.words) for one in own]
            try:
                address = await self._means.routes.address(own[0])
                held = await requests.lock(
                    self._means.client, address, self._means.name, self._means.group.name, own
                )
            except RocketError as error:
                self._means.routes.forget(own[0].topic)
                for row in rows:
                    self._means.rows.end(row, Completion(type=fate_of(error), error=str(error)))
                continue
            except asyncio.CancelledError:
                for row in rows:
                    self._means.rows.end(row, Completion(type="info", error=GONE))
                raise
            for row, queue in zip(rows, own, strict=True):
                answered[queue] = queue in held
                self._means.rows.end(
                    row, Completion(type="ok", extra=self._means.words | {"held": queue in held})
                )
        return answered

    async def unlock(self, queues: list[Queue]) -> None:
        if not self._means.group.orderly or not queues:
            return
        for queue in queues:
            self._asked.pop(queue, None)
        try:
            address = await self._means.routes.address(queues[0])
            await requests.unlock(
                self._means.client, address, self._means.name, self._means.group.name, queues
            )
        except RocketError:
            pass  # it expires


async def _commit(means: Means, one: Consumption, offset: int | None) -> None:
    if offset is None:
        return
    rows, words = means.rows, means.words
    row = rows.begin("commit", one.key, words)
    try:
        address = await means.routes.address(one.queue)
        await means.client.commit_offset(address, one.queue, offset)
    except RocketError as error:
        means.routes.forget(one.queue.topic)
        rows.end(row, Completion(type=fate_of(error), offset=offset, error=str(error)))
        return
    except asyncio.CancelledError:
        rows.end(row, Completion(type="info", offset=offset, error=GONE))
        raise
    rows.end(row, Completion(type="ok", offset=offset))


def _key(queue: Queue) -> str:
    return f"{queue.topic}/{queue.queue_id}"
