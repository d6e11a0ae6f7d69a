"""The body of GET_BROKER_HA_STATUS (907): how far slaves are, or how far this slave is.

Source: remoting/protocol/body/HARuntimeInfo.java; docs/protocols.md 6.2. Rates are averages over
the life of a connection; upstream's are of the last second.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shalott.broker.base.env import Env
from shalott.broker.rocket.ha.autoswitch.service import AutoSwitchHAService

NS_PER_MS = 1_000_000


def ha_status(env: Env, service: AutoSwitchHAService, name: Callable[[int], str]) -> dict[str, Any]:
    """``name`` makes a node's name of a broker id."""
    tenure, log = service.tenure, service.store.log
    end = log.max_offset
    connections = [] if tenure is None else sorted(tenure.connections.items())
    return {
        "master": tenure is not None,
        "masterCommitLogMaxOffset": end if tenure is not None else 0,
        "inSyncSlaveNums": 0 if tenure is None else tenure.in_sync_slaves(),
        "haConnectionInfo": [
            {
                "addr": name(slave),
                "slaveAckOffset": one.ack_offset,
                "diff": end - one.ack_offset,
                "inSync": tenure is not None and slave in tenure.set.members,
                "transferredByteInSecond": one.rate_bytes_s(),
                "transferFromWhere": one.transfer_from,
            }
            for slave, one in connections
        ],
        "haClientRuntimeInfo": _client_info(env, service),
    }


def _client_info(env: Env, service: AutoSwitchHAService) -> dict[str, Any]:
    client, log = service.client, service.store.log
    if client is None:
        return {}
    return {
        "masterAddr": client.following.address,
        "maxOffset": log.max_offset,
        "lastReadTimestamp": _wall_ms(env, client.last_read_ns),
        "lastWriteTimestamp": _wall_ms(env, client.last_write_ns),
        "transferredByteInSecond": client.rate_bytes_s(),
        "masterFlushOffset": 0,
        "isActivated": client.is_connected,
    }


def _wall_ms(env: Env, at_ns: int) -> int:
    """A time of the monotonic clock as people read it; 0 for never."""
    if not at_ns:
        return 0
    ago_ns = env.clock.monotonic_ns() - at_ns
    return (env.clock.wall_ns() - ago_ns) // NS_PER_MS
