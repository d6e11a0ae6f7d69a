"""Runtime parameters: what operators set by component and name, in a vhost or for the cluster.

After rabbit/rabbit_runtime_parameters.erl. Each component of RabbitMQ's belongs to a plugin, but
for policies, which have tables of their own, and the limits of vhosts (rabbit_vhost_limit.erl).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeGuard

from shalott.broker.rabbit.metadata.api import Transaction
from shalott.broker.rabbit.metadata.permissions import Reads
from shalott.broker.rabbit.metadata.records import ParameterRow

TABLE = "parameter"
VHOST_LIMITS = "vhost-limits"
LIMITS = "limits"  # the one name that the component has
VHOST_LIMIT_NAMES = ("max-connections", "max-queues")
CLUSTER_NAME = "cluster_name"


def parameter_key(component: str, name: str, vhost: str = "") -> str:
    return f"{component}/{name}@{vhost}"


def parameter_rows(tables: Reads) -> list[ParameterRow]:
    return [row for _, row in tables.rows(TABLE) if isinstance(row, ParameterRow)]


def find(tables: Reads, component: str, name: str, vhost: str = "") -> ParameterRow | None:
    row = tables.read(TABLE, parameter_key(component, name, vhost))
    return row if isinstance(row, ParameterRow) else None


def put(tx: Transaction, row: ParameterRow) -> bool:
    """False if it was there."""
    is_new = find(tx, row.component, row.name, row.vhost) is None
    tx.write(TABLE, parameter_key(row.component, row.name, row.vhost), row)
    return is_new


def clear(tx: Transaction, component: str, name: str, vhost: str = "") -> bool:
    """False if there is none."""
    if find(tx, component, name, vhost) is None:
        return False
    tx.delete(TABLE, parameter_key(component, name, vhost))
    return True


# -- limits ----------------------------------------------------------------------------------------


def vhost_limits(tables: Reads, vhost: str) -> dict[str, int]:
    row = find(tables, VHOST_LIMITS, LIMITS, vhost)
    value = None if row is None else row.value
    return {str(k): v for k, v in value.items() if _is_int(v)} if isinstance(value, dict) else {}


def set_vhost_limit(tx: Transaction, vhost: str, name: str, value: int | None) -> bool:
    """None clears it. The last one takes the parameter along; False if it was not there."""
    limits = vhost_limits(tx, vhost)
    was_there = name in limits
    if value is None:
        limits.pop(name, None)
    else:
        limits[name] = value
    if limits:
        put(tx, ParameterRow(component=VHOST_LIMITS, vhost=vhost, name=LIMITS, value=limits))
    else:
        clear(tx, VHOST_LIMITS, LIMITS, vhost)
    return was_there


def problem_of_limits(
    limits: Mapping[str, object], known: tuple[str, ...], where: str
) -> str | None:
    """In RabbitMQ's words; -1 is no limit."""
    unknown = [f'{{<<"{name}">>,{value}}}' for name, value in limits.items() if name not in known]
    if unknown:
        return f"Unrecognised terms [{','.join(unknown)}] in {where}"
    for name, value in limits.items():
        if not _is_int(value) or value < -1:
            return f'<<"{name}">> should be number >= -1, actually was {value}'
    return None


def _is_int(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
