"""Software that is more than its nodes: services that start in an order, some of which help.

A compose project is such (cluster/compose). A world of containers makes all of them, starts each
when what it waits for is there, and breaks none but the nodes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from shalott.cluster.nodes import NodeSpec

Condition = Literal["service_started", "service_healthy", "service_completed_successfully"]
STARTED: Condition = "service_started"
HEALTHY: Condition = "service_healthy"
COMPLETED: Condition = "service_completed_successfully"


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """``containers``: by name; each has a ``NodeSpec.container``. ``waits``: by service, for what.
    ``is_job``: nothing serves clients before it has ended."""

    name: str
    containers: Mapping[str, NodeSpec]
    waits: Mapping[str, Condition]
    is_node: bool
    is_job: bool = False


@runtime_checkable
class HasServices(Protocol):
    """Software whose nodes are containers of some of these services.

    ``volumes``: by name, those that several containers use. ``subnet``: of the run's network, ""
    for any.
    """

    services: Sequence[Service]
    volumes: Sequence[str]
    subnet: str


@runtime_checkable
class StartsServices(Protocol):
    """Hosts that start services, and ask nodes for their health."""

    async def start_services(
        self, software: HasServices, start_node: Callable[[str], Awaitable[None]]
    ) -> None:
        """Each when what it waits for is there. Raises BootFailed."""
        ...

    async def why_unhealthy(self, node: str) -> str:
        """What its own health check says; "" if it is well, or has none."""
        ...
