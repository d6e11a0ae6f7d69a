"""Which brokers are alive, as one controller sees it, and what they last said of their logs.

Every controller hears the heartbeats of every broker (904), so that one that becomes leader knows
already who lives; none of this is replicated. A broker is alive until no heartbeat came for as long
as its last one allows, or its connection ends. After DefaultBrokerHeartbeatManager, but a heartbeat
here replaces all that the one before it said, the connection included: upstream only ever raises
offsets and stays with the first connection (docs/evidence/original-sources.md, finding f), so it
judges a broker that came back with a shorter log, or over another connection, by what was true
before.
"""

from __future__ import annotations

from dataclasses import dataclass

from shalott.broker.base.env import Env
from shalott.broker.rocket.controller.elect_policy import LiveInfo
from shalott.broker.rocket.controller.messages import Heartbeat
from shalott.broker.rocket.remoting.server import Caller

MS = 1_000_000
TICK_MS = 200
STALL_MS = 1000  # as long as brokers wait for the answer to a heartbeat (client.py)
SETTLE_MS = 2000  # and once more, with an interval between heartbeats


@dataclass(frozen=True, slots=True)
class Identity:
    """One broker, among all."""

    cluster: str
    group: str
    broker_id: int


@dataclass(frozen=True, slots=True)
class _Alive:
    heard_ns: int
    timeout_ms: int
    info: LiveInfo
    caller: Caller | None

    def is_fresh(self, now_ns: int) -> bool:
        return self.heard_ns + self.timeout_ms * MS >= now_ns


class HeartbeatManager:
    """Times are of this node's own clock: brokers' clocks play no part."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._ticked_ns = env.clock.monotonic_ns()
        self._passed_ns = 0  # while it listened, up to the last tick
        self._settled_ns = 0  # when it will have heard all that was said during a pause
        self._alive: dict[Identity, _Alive] = {}

    def heard(self, heartbeat: Heartbeat, caller: Caller | None = None) -> bool:
        """A heartbeat came; returns whether the broker was not known to be alive."""
        who = Identity(heartbeat.cluster_name, heartbeat.broker_name, heartbeat.broker_id)
        known, now_ns = self._alive.get(who), self._now_ns()
        info = LiveInfo(
            heartbeat.epoch,
            heartbeat.max_offset,
            heartbeat.confirm_offset,
            heartbeat.election_priority,
        )
        self._alive[who] = _Alive(now_ns, heartbeat.heartbeat_timeout_mills, info, caller)
        return known is None or not known.is_fresh(now_ns)

    def over(self, caller: Caller) -> list[Identity]:
        """Those who spoke over this connection last."""
        return [who for who, alive in self._alive.items() if alive.caller is caller]

    def drop(self, who: Identity, caller: Caller) -> bool:
        """This connection is over; whether that was the end of ``who``, who spoke over it last."""
        alive = self._alive.get(who)
        if alive is None or alive.caller is not caller:
            return False
        del self._alive[who]
        return True

    def tick(self) -> None:
        """To be called every ``TICK_MS``."""
        now_ns = self._env.clock.monotonic_ns()
        self._passed_ns = self._now_ns()
        if now_ns - self._ticked_ns > STALL_MS * MS:
            self._settled_ns = self._passed_ns + SETTLE_MS * MS
        self._ticked_ns = now_ns

    def settling_ms(self) -> float:
        """How long to wait before the end of a connection means anything."""
        return max(0, self._settled_ns - self._now_ns()) / MS

    def expired(self) -> list[Identity]:
        """Take out, and return, all that were silent for too long."""
        now_ns = self._now_ns()
        gone = [who for who, alive in self._alive.items() if not alive.is_fresh(now_ns)]
        for who in gone:
            del self._alive[who]
        return gone

    def is_alive(self, cluster: str, group: str, broker_id: int) -> bool:
        alive = self._alive.get(Identity(cluster, group, broker_id))
        return alive is not None and alive.is_fresh(self._now_ns())

    def is_recorded(self, cluster: str, group: str, broker_id: int) -> bool:
        """Whether it was heard of, and not declared dead since."""
        return Identity(cluster, group, broker_id) in self._alive

    def live_info(self, cluster: str, group: str, broker_id: int) -> LiveInfo | None:
        alive = self._alive.get(Identity(cluster, group, broker_id))
        return None if alive is None else alive.info

    def active(self) -> dict[str, dict[str, int]]:
        """How many brokers are alive, by cluster and group."""
        counts: dict[str, dict[str, int]] = {}
        now_ns = self._now_ns()
        for who, alive in self._alive.items():
            if alive.is_fresh(now_ns):
                groups = counts.setdefault(who.cluster, {})
                groups[who.group] = groups.get(who.group, 0) + 1
        return counts

    def _now_ns(self) -> int:
        """How long it has listened."""
        since_tick_ns = self._env.clock.monotonic_ns() - self._ticked_ns
        return self._passed_ns + min(since_tick_ns, 2 * TICK_MS * MS)
