"""Locks by leases: a key that its holder's lease keeps, and that goes with it.

Who puts the key where there is none holds the lock, and keeps the lease alive meanwhile.

    acquire   ok     the key was put, and there is time left on the lease
              fail   another's key is there (error "empty", as the workload has it)
    release   ok     the lease was revoked, and the key with it
              info   not answered; the key goes when the lease ends

``trust``: when a holder takes its lock for lost. "clock": when the lease was renewed too long ago,
so that it never holds what may have ended: etcd must not end a lease before its time. "answers":
when etcd says that the lease is gone; a holder that hears nothing holds on, as lock libraries do,
and by then another may hold the lock: https://jepsen.io/analyses/etcd-3.4.3
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

import shalott.api as api
from shalott_etcd.client import Done, Store, Streamed, ask, encode

PREFIX = "lock/"
EMPTY = "empty"


class Lease(msgspec.Struct, frozen=True):
    """One that is gone has a TTL of nothing."""

    ID: str = "0"
    TTL: str = "0"


@dataclass(slots=True)
class Hold:
    key: str
    lease: str
    renewed_s: float  # when the last renewal that was answered was sent
    lost: asyncio.Event = field(default_factory=asyncio.Event)
    keeping: asyncio.Task[None] | None = None


class LeaseClient(Store):
    """Serves acquire and release on one node; holds one lock at most. ``ttl_s``: of a lease. Half
    of it is for a holder that stalls and hears of that too late."""

    def __init__(
        self, host: str, port: int, *, timeout_ms: int, ttl_s: int, by_clock: bool
    ) -> None:
        super().__init__(host, port, timeout_ms=timeout_ms)
        self._ttl_s, self._by_clock = ttl_s, by_clock
        self._hold: Hold | None = None

    async def close(self) -> None:
        """What it held stays until the lease ends."""
        await self._let_go()

    async def until_lost(self) -> None:
        """See ``core.client.Watchful``."""
        if self._hold is None:
            await asyncio.Event().wait()
        else:
            await self._hold.lost.wait()

    async def invoke(self, invocation: api.Invocation) -> api.Completion:
        if invocation.f == "acquire":
            return await self._acquire(invocation.key)
        if invocation.f == "release":
            return await self._release(invocation.key)
        raise api.Definite(f"a client of locks knows no {invocation.f}")

    async def _acquire(self, key: str) -> api.Completion:
        if self._hold is not None:
            raise api.Definite(f"it holds {self._hold.key}")
        began_s = _now_s()
        try:
            wanted = {"TTL": str(self._ttl_s)}
            lease = await ask(self.at, "lease/grant", wanted, self.timeout_ms, Lease)
        except api.Indefinite as error:
            raise api.Definite(f"no lease: {error}") from error  # one without a key holds nothing
        name = encode(PREFIX + key)
        free = {"key": name, "target": "CREATE", "createRevision": "0"}
        put = {"requestPut": {"key": name, "value": encode(lease.ID), "lease": lease.ID}}
        if not (await self.ask("txn", {"compare": [free], "success": [put]}, Done)).succeeded:
            with suppress(api.ClientError):
                await self._revoke(lease.ID)
            return api.Completion(type="fail", error=EMPTY)
        hold = Hold(key, lease.ID, began_s)
        if self._left_s(hold) <= 0:
            raise api.Indefinite("the lease may have ended before it was known to be held")
        self._hold = hold
        hold.keeping = asyncio.ensure_future(self._keep(hold))
        return api.Completion(type="ok")

    async def _release(self, key: str) -> api.Completion:
        hold = self._hold
        if hold is None or hold.key != key:
            raise api.Definite(f"it does not hold {key}")
        lost = hold.lost.is_set()
        await self._let_go()
        if lost:
            raise api.Indefinite(f"the lease of {key} was lost")
        try:
            await self._revoke(hold.lease)
        except api.ClientError as error:  # it has let go, whatever etcd knows
            raise api.Indefinite(str(error)) from error
        return api.Completion(type="ok")

    async def _revoke(self, lease: str) -> None:
        await ask(self.at, "lease/revoke", {"ID": lease}, self.timeout_ms, dict[str, object])

    async def _let_go(self) -> None:
        hold, self._hold = self._hold, None
        if hold is not None and hold.keeping is not None:
            hold.keeping.cancel()
            await asyncio.gather(hold.keeping, return_exceptions=True)

    def _left_s(self, hold: Hold) -> float:
        """How long it may still take the lease for its own, by the clock."""
        return hold.renewed_s + self._ttl_s / 2 - _now_s() if self._by_clock else self._ttl_s

    async def _keep(self, hold: Hold) -> None:
        while self._left_s(hold) > 0:
            await asyncio.sleep(min(self._ttl_s / 6, self._left_s(hold)))
            wait_ms = int(min(self.timeout_ms, 1000 * max(0.001, self._left_s(hold))))
            sent_s = _now_s()
            try:
                told = await ask(
                    self.at, "lease/keepalive", {"ID": hold.lease}, wait_ms, Streamed[Lease]
                )
            except api.ClientError:
                continue  # not heard of: it may have been renewed
            if told.result.TTL == "0":
                break
            hold.renewed_s = sent_s
        hold.lost.set()


def _now_s() -> float:
    return asyncio.get_running_loop().time()
