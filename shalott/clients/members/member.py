"""Member: one consumer of a group, as RocketMQ's DefaultMQPushConsumer is one.

It says to all brokers of its topics that it is there (heartbeats), asks the master who else is,
takes its share of the queues (RebalanceImpl), pulls and consumes them (consumption.py), and
commits what was consumed (RemoteBrokerOffsetStore). It leaves by finishing what its listener works
on, committing and unregistering; it dies by dropping its connections without a word.

Apart from upstream: offsets are asked for and committed at masters only, commits await their
answers, and an orderly queue whose lock is somebody else's is given up at once and begun anew from
the committed offset.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from shalott.broker.rocket.remoting.codes import RequestCode
from shalott.broker.rocket.remoting.command import Command
from shalott.checkers.groups.group_rules import Group
from shalott.clients.members import requests
from shalott.clients.members.allocation import allocate_averagely
from shalott.clients.members.consumption import (
    GONE,
    Consumption,
    Means,
    MemberSettings,
    fate_of,
)
from shalott.clients.members.listener import Listener
from shalott.clients.members.routes import Routes
from shalott.clients.members.rows import Rows
from shalott.clients.rocketmq import Dial, Queue, RocketClient, RocketError

FIRST_AGAIN_S = 1.0  # until some broker has taken the first heartbeat


class Member:
    """``name`` is its client id. Begins at once, in the background, and ends by ``leave`` or by
    ``end``."""

    def __init__(
        self,
        name: str,
        group: Group,
        *,
        settings: MemberSettings,
        name_server: str,
        dial: Dial,
        listener: Listener,
        rows: Rows,
    ) -> None:
        client = RocketClient(
            [name_server],
            dial=dial,
            group=group.name,
            timeout_ms=settings.timeout_ms,
            on_push=self._pushed,
        )
        self.group = group
        self.name = name
        self._means = Means(
            name=name,
            group=group,
            settings=settings,
            client=client,
            routes=Routes(client, settings.route_poll_ms),
            listener=listener,
            rows=rows,
            slots=asyncio.Semaphore(settings.parallel),
        )
        self._client = client
        self._queues: dict[Queue, Consumption] = {}
        self._local: dict[Queue, int] = {}  # of a broadcast: how far it came
        self._locks: dict[Queue, None] = {}  # asked for: held, perhaps
        self._rebalance_now = asyncio.Event()
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._ended = False
        self._row = rows.begin("member", group.name, self._words)
        self._spawn(self._live())

    @property
    def _words(self) -> dict[str, Any]:
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
        await asyncio.gather(*self._cancel(), return_exceptions=True)
        held = list(self._queues.values())
        await asyncio.gather(*(one.stop() for one in held))
        await self._commit_all()
        await self._unlock(list(self._locks))
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
        await asyncio.gather(*self._cancel(), return_exceptions=True)
        for one in self._queues.values():
            await one.end(ended)
        self._queues.clear()
        self._means.rows.end(self._row, extra=self._words | {"ended": ended})
        await self._client.close()

    def _cancel(self) -> list[asyncio.Task[None]]:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        return tasks

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name=f"member {self.name}")
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    # -- its life ----------------------------------------------------------------------------------

    async def _live(self) -> None:
        while True:
            if await self._beat():
                break
            await asyncio.sleep(FIRST_AGAIN_S)
        self._spawn(self._keep_beating())
        if not self.group.broadcast:
            self._spawn(self._keep_committing())
        if self.group.orderly:
            self._spawn(self._keep_locking())
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
            self._spawn(self._reset(topic, requests.reset_offsets(command)))

    # -- rebalance ---------------------------------------------------------------------------------

    async def _rebalance(self, topic: str) -> None:
        """As long as somebody does not answer, nothing changes."""
        try:
            queues = await self._means.routes.queues(topic)
            mine = queues if self.group.broadcast else await self._share(topic, queues)
        except RocketError:
            self._means.routes.forget(topic)
            return
        for queue, one in list(self._queues.items()):
            if queue.topic == topic and queue not in mine and not one.dropped:
                self._spawn(self._give_up(queue, one, "rebalanced"))
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
        if self.group.orderly and not (await self._lock([queue])).get(queue):
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
            self._spawn(self._give_up(one.queue, one, "lock-lost"))

    async def _give_up(self, queue: Queue, one: Consumption, ended: str) -> None:
        """Commit what was consumed before, wait for the listener, unlock."""
        one.dropped = True
        if self.group.broadcast:
            self._local[queue] = one.pulled.committable
        else:
            await self._commit(one, one.committable)
        await one.drop()
        if ended != "lock-lost":
            await self._unlock([queue])
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
                await self._commit(one, offset)
            await one.end("rebalanced")
            self._queues.pop(queue, None)
        self._rebalance_now.set()

    # -- locks -------------------------------------------------------------------------------------

    async def _keep_locking(self) -> None:
        while True:
            await asyncio.sleep(self._means.settings.lock_ms / 1000)
            queues = [queue for queue, one in self._queues.items() if not one.dropped]
            asked_s = asyncio.get_running_loop().time()
            held = await self._lock(queues)
            for queue, is_held in held.items():
                one = self._queues.get(queue)
                if one is None or one.dropped:
                    continue
                if is_held:
                    one.lock_s = asked_s
                else:
                    self._lost(one)

    async def _lock(self, queues: list[Queue]) -> dict[Queue, bool]:
        """Whether each is held, as its master answers; those without an answer are left out."""
        answered: dict[Queue, bool] = {}
        by_broker: dict[str, list[Queue]] = {}
        for queue in queues:
            by_broker.setdefault(queue.broker_name, []).append(queue)
            self._locks[queue] = None
        for own in by_broker.values():
            rows = [self._means.rows.begin("lock", _key(one), self._means.words) for one in own]
            try:
                address = await self._means.routes.address(own[0])
                held = await requests.lock(self._client, address, self.name, self.group.name, own)
            except RocketError as error:
                self._means.routes.forget(own[0].topic)
                for row in rows:
                    self._means.rows.end(row, fate_of(error), error=str(error))
                continue
            except asyncio.CancelledError:
                for row in rows:
                    self._means.rows.end(row, "info", error=GONE)
                raise
            for row, queue in zip(rows, own, strict=True):
                answered[queue] = queue in held
                self._means.rows.end(row, extra=self._means.words | {"held": queue in held})
        return answered

    async def _unlock(self, queues: list[Queue]) -> None:
        if not self.group.orderly or not queues:
            return
        for queue in queues:
            self._locks.pop(queue, None)
        try:
            address = await self._means.routes.address(queues[0])
            await requests.unlock(self._client, address, self.name, self.group.name, queues)
        except RocketError:
            pass  # it expires

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
                await self._commit(one, one.committable)

    async def _commit(self, one: Consumption, offset: int | None) -> None:
        if offset is None:
            return
        rows, words = self._means.rows, self._means.words
        row = rows.begin("commit", one.key, words)
        try:
            address = await self._means.routes.address(one.queue)
            await self._client.commit_offset(address, one.queue, offset)
        except RocketError as error:
            self._means.routes.forget(one.queue.topic)
            rows.end(row, fate_of(error), offset=offset, error=str(error))
            return
        except asyncio.CancelledError:
            rows.end(row, "info", offset=offset, error=GONE)
            raise
        rows.end(row, offset=offset)

    def stands_at(self, key: str) -> int | None:
        """How far it has consumed a queue, whatever it has committed; None if it does not have
        it."""
        found = [one.pulled.committable for one in self._queues.values() if one.key == key]
        return found[0] if found else None


def _key(queue: Queue) -> str:
    return f"{queue.topic}/{queue.queue_id}"
