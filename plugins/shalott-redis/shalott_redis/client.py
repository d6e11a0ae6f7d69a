"""Clients of Redis and Valkey by redis-py, without its retries: queues, registers, logs.

A client asks the sentinel of its node, or there the cluster, who the master is, and keeps to that
one until it is refused or loses the connection. What must reach copies goes in one pipeline with
WAIT or WAITAOF: those speak of the writes of their own connection, so none may be made in between.

    ok          the answer, and as many copies as were asked for
    Definite    answers that refuse a command before it does anything (REFUSED)
    Indefinite  no answer, another error, or too few copies: it is on the master, which may lose it
    Unreachable no master is known, or it takes no connection

Reads that have to be true of all copies write a mark, and wait for that: a former master that is
cut off gets no copy of it. One that fails is Definite, for a read changes nothing.
https://redis.io/docs/latest/commands/wait/, https://redis.io/docs/latest/commands/waitaof/
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from uuid import uuid4

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.exceptions import (
    AskError,
    BusyLoadingError,
    ClusterDownError,
    MasterDownError,
    MovedError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    TryAgainError,
)

from shalott.api import Definite, Indefinite, Received, Unreachable

MASTER = "shalott"  # what sentinels call it
GROUP = "shalott"  # of a stream's consumers
WAIT_MS = 1000  # for copies
MOST = 300  # messages of a key in one poll
REFUSED = ("NOREPLICAS", "LOADING", "MISCONF", "NOGROUP")
REFUSALS = (
    *(AskError, ClusterDownError, MasterDownError, MovedError),
    *(OutOfMemoryError, ReadOnlyError, TryAgainError),
)

# A message that is taken lies in a sorted set by the time when it was; one that lay there too long
# is given to another client: what died with the first is not lost. (So do Celery's workers.)
TAKE = """
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local body = redis.call('LPOP', KEYS[1])
if body then
  redis.call('ZADD', KEYS[2], now, body)
  return {body, body, 0}
end
local old = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now - ARGV[1], 'LIMIT', 0, 1)[1]
if old then
  redis.call('ZADD', KEYS[2], now, old)
  return {old, old, 1}
end
return redis.call('ZCARD', KEYS[2])
"""
READ_GROUP = """
local got = redis.call('XREADGROUP', 'GROUP', ARGV[2], ARGV[3], 'COUNT', 1, 'STREAMS', KEYS[1], '>')
if got then
  local entry = got[1][2][1]
  return {entry[1], entry[2][2], 0}
end
local old = redis.call('XAUTOCLAIM', KEYS[1], ARGV[2], ARGV[3], ARGV[1], '0-0', 'COUNT', 1)[2][1]
if old then
  return {old[1], old[2][2], 1}
end
return redis.call('XPENDING', KEYS[1], ARGV[2])[1]
"""
CAS = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
redis.call('SET', KEYS[1], ARGV[2])
return 1
"""

Command = tuple[str | bytes | int, ...]


@dataclass(frozen=True, slots=True)
class Ways:
    """What clients do. ``copies``: how many replicas must have a write; ``synced``: on their disks,
    and on the master's, which Redis 7.0 can't be asked."""

    copies: int = 0
    synced: bool = False
    is_cluster: bool = False
    structure: Literal["list", "stream"] = "list"


class RedisClient:
    """Asks the node's port ``sentinel``, or in a cluster the node itself, for the master."""

    def __init__(self, host: str, port: int, *, timeout_ms: int, ways: Ways) -> None:
        self._at, self._timeout_ms, self._ways = (host, port), timeout_ms, ways
        self._masters: dict[tuple[str, int], Redis] = {}
        self._name = uuid4().hex

    async def open(self) -> None:
        if not self._ways.is_cluster:
            await self._master("")

    async def close(self) -> None:
        masters, self._masters = list(self._masters.values()), {}
        for master in masters:
            await _drop(master)

    async def _find(self, key: str) -> tuple[str, int]:
        asked = dial(*self._at, self._timeout_ms / 1000)
        try:
            async with asyncio.timeout(self._timeout_ms / 1000), asked:
                if self._ways.is_cluster:
                    slot = key_slot(key.encode())
                    rows = await ask(asked, "CLUSTER", "SLOTS")
                    told = next(row[2] for row in rows if row[0] <= slot <= row[1])
                else:
                    told = await ask(asked, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER)
            return _text(told[0]), int(told[1])
        except (RedisError, OSError, TimeoutError, TypeError, StopIteration) as error:
            raise Unreachable(f"no master is known: {_said(error)}") from error

    async def _master(self, key: str) -> Redis:
        if not self._ways.is_cluster and self._masters:
            return next(iter(self._masters.values()))
        at = await self._find(key)
        if at not in self._masters:
            master = dial(*at, self._timeout_ms / 1000)
            try:
                async with asyncio.timeout(self._timeout_ms / 1000):
                    await master.ping()
            except (RedisError, OSError, TimeoutError) as error:
                await _drop(master)
                raise Unreachable(f"{at[0]} takes no connection: {_said(error)}") from error
            self._masters[at] = master
        return self._masters[at]

    async def _ask(self, key: str, *commands: Command) -> list[object]:
        """The answers of the key's master, by one connection, without an error among them."""
        master = await self._master(key)
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                pipe = master.pipeline(transaction=False)
                for command in commands:
                    pipe.execute_command(*command)
                answers: list[object] = await pipe.execute(raise_on_error=False)
        except (RedisError, OSError, TimeoutError) as error:
            await self.close()
            refused = isinstance(error, BusyLoadingError)
            raise (Definite if refused else Indefinite)(_said(error)) from error
        for number, answer in enumerate(answers):
            if isinstance(answer, Exception):
                await self.close()  # the next operation asks anew who the master is
                refused = number == 0 and str(answer).startswith(REFUSED)
                refused |= number == 0 and type(answer) in REFUSALS
                raise (Definite if refused else Indefinite)(_said(answer)) from answer
        return answers

    async def _write(self, key: str, *commands: Command) -> object:
        """The first answer, once so many copies have what was written."""
        ways = self._ways
        if not ways.copies:
            return (await self._ask(key, *commands))[0]
        wait: Command = ("WAIT", ways.copies, WAIT_MS)
        if ways.synced:
            wait = ("WAITAOF", 1, ways.copies, WAIT_MS)
        *answers, reached = await self._ask(key, *commands, wait)
        local, copies = reached if isinstance(reached, list) else (1, reached)
        if int(local) < 1 or int(str(copies)) < ways.copies:
            raise Indefinite(f"{copies} of {ways.copies} copies have it after {WAIT_MS} ms")
        return answers[0]

    async def _read(self, key: str, command: Command) -> object:
        """The answer of a read; if writes need copies, one that these have."""
        try:
            if self._ways.copies:
                return await self._write(key, command, ("INCR", f"{{{key}}}.reads"))
            return (await self._ask(key, command))[0]
        except Indefinite as error:
            raise Definite(f"a read changes nothing: {error}") from error


class QueueClient(RedisClient):
    """See ``Queued``: lists, or streams with a group of consumers."""

    async def send(self, queue: str, body: bytes) -> None:
        if self._ways.structure == "list":
            await self._write(queue, ("RPUSH", queue, body))
        else:
            await self._write(queue, ("XADD", queue, "*", "body", body))

    async def receive(self, queue: str) -> Received | None:
        idle = self._timeout_ms
        if self._ways.structure == "list":
            command: Command = ("EVAL", TAKE, 2, queue, f"{{{queue}}}.taken", idle)
        else:
            command = ("EVAL", READ_GROUP, 1, queue, idle, GROUP, self._name)
        (answer,) = await self._ask(queue, command)
        if isinstance(answer, list):
            token, body, again = answer
            return Received(bytes(body), True if again else None, (queue, token))
        if answer:
            raise Definite(f"{answer} messages are with other clients")
        return None

    async def settle(self, received: Received) -> None:
        assert isinstance(received.token, tuple)
        queue, token = received.token
        if self._ways.structure == "list":
            await self._ask(queue, ("ZREM", f"{{{queue}}}.taken", token))
        else:
            await self._ask(queue, ("XACK", queue, GROUP, token))


class RegisterClient(RedisClient):
    """See ``Registered``: a string a register, compared and set by a script."""

    async def read(self, key: str) -> int | None:
        answer = await self._read(key, ("GET", key))
        return None if answer is None else int(str(_text(answer)))

    async def write(self, key: str, value: int) -> None:
        await self._write(key, ("SET", key, value))

    async def cas(self, key: str, old: int, new: int) -> bool:
        return bool(await self._write(key, ("EVAL", CAS, 1, key, old, new)))


class LogClient(RedisClient):
    """See ``Partitioned``: a key is a list, whose new length says where the last one stands."""

    async def open(self) -> None: ...

    async def transact(
        self, mops: Sequence[tuple[object, ...]], places: Mapping[int, int]
    ) -> Sequence[tuple[int, int] | Mapping[int, Sequence[tuple[int, int]]]]:
        (mop,) = mops
        if mop[0] == "send":
            value = int(str(mop[2]))
            length = await self._write(f"log.{mop[1]}", ("RPUSH", f"log.{mop[1]}", value))
            return [(int(str(length)) - 1, value)]
        found: dict[int, list[tuple[int, int]]] = {}
        for key, at in places.items():
            command = ("LRANGE", f"log.{key}", at, at + MOST - 1)
            answer = await self._read(f"log.{key}", command)
            assert isinstance(answer, list)
            found[key] = [(at + number, int(value)) for number, value in enumerate(answer)]
        return [found]


def dial(host: str, port: int, timeout_s: float) -> Redis:
    """A client that repeats nothing by itself."""
    never = Retry(NoBackoff(), 0)
    return Redis(
        host=host,
        port=port,
        protocol=2,
        retry=never,
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s,
    )


async def ask(redis: Redis, *words: str | int) -> Any:
    """The answer of one command, as the server gave it."""
    pipe = redis.pipeline(transaction=False)
    pipe.execute_command(*words)
    return (await pipe.execute())[0]


async def _drop(master: Redis) -> None:
    try:
        await master.aclose()
    except (RedisError, OSError):
        pass  # it is gone already


def _text(told: object) -> str:
    return told.decode() if isinstance(told, bytes) else str(told)


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".removesuffix(": ")
