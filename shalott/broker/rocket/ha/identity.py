"""PeerNames: which node is behind the address that an HA connection comes from.

The wire says nothing about who a slave is. A host's address does, as long as no two nodes of the
group share it.
"""

from __future__ import annotations

import asyncio

from shalott.broker.rocket.addresses import parse_address
from shalott.broker.rocket.config import RocketConfig


class PeerNames:
    def __init__(self, config: RocketConfig) -> None:
        self._hosts = {
            peer.name: parse_address(peer.advertised["ha"])
            for peer in config.peers
            if "ha" in peer.advertised
        }
        self._own = config.advertised.get("ha", "")

    async def name_of(self, address: str) -> str:
        """The one node at this address; "" if there is none, or more than one."""
        names = [name for name, where in self._hosts.items() if address in await _resolved(*where)]
        if self._own and address in await _resolved(*parse_address(self._own)):
            return ""
        return names[0] if len(names) == 1 else ""


async def _resolved(host: str, port: int) -> list[str]:
    """The addresses of a host; none if its name means nothing now."""
    try:
        infos = await asyncio.get_running_loop().getaddrinfo(host, port)
    except OSError:
        return []
    return [str(info[4][0]) for info in infos]
