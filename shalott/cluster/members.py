"""Systems whose nodes leave their cluster and join it: a protocol that a ``System`` offers or not.

It is part of cluster/base.py for who uses it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from shalott.cluster.base import Cluster, System


@runtime_checkable
class ChangesMembers(Protocol):
    """A System whose nodes leave its cluster and join it, as an operator has it.

    The nodes of a plan stay what they are. One that left is a machine that is there and does not
    belong to the cluster; it joins again under its name, with an empty disk. Nobody waits for a
    node that is ``left_out``: neither ``await_settled`` nor who heals a run.
    """

    @property
    def left_out(self) -> Sequence[str]:
        """The nodes that were forgotten and have not been let in again."""
        ...

    def why_not_leave(self, node: str) -> str:
        """Why the node can't leave the cluster, or come back empty; "" if it can."""
        ...

    async def members(self, cluster: Cluster, node: str) -> Sequence[str]:
        """The nodes that belong to the cluster, running or not, as ``node`` says. Raises
        ClientError."""
        ...

    async def running_members(self, cluster: Cluster, node: str) -> Sequence[str]:
        """Those of them that run, as ``node`` says. Raises ClientError."""
        ...

    async def forget(self, cluster: Cluster, node: str, by: str) -> None:
        """Have ``by`` take ``node``, which is down, out of the cluster, if it is in it. Raises
        ClientError."""
        ...

    async def admit(self, cluster: Cluster, node: str, by: str) -> None:
        """Have ``by`` let ``node`` in, whose disk is empty and which is started next, if it is
        not in. Raises ClientError."""
        ...


def members_of(cluster: Cluster, system: System) -> tuple[str, ...]:
    """The nodes of the plan without those that are left out of the system's cluster."""
    out = system.left_out if isinstance(system, ChangesMembers) else ()
    return tuple(node for node in cluster.nodes if node not in out)
