"""AddressBook: from the address under which a node is known to the one where it is dialled.

RocketMQ's messages carry addresses ("host:port"): of a master's HA port, of a controller, of a
broker in a route. Where links run through relays, a node must not dial these as they are.
"""

from __future__ import annotations

from shalott.broker.base.errors import BrokerError
from shalott.broker.rocket.config import RocketConfig


class AddressBook:
    """One node's. Everything in it is fixed when the node is configured."""

    def __init__(self, config: RocketConfig) -> None:
        self._name = config.name
        self._advertised = {config.name: dict(config.advertised)}
        self._advertised |= {peer.name: dict(peer.advertised) for peer in config.peers}
        self._dial = {
            address: peer.dial[port]
            for peer in config.peers
            for port, address in peer.advertised.items()
        }
        self._node_of = {
            address: node
            for node, addresses in self._advertised.items()
            for address in addresses.values()
        }

    def advertised(self, node: str, port: str) -> str:
        """How a node's port is called in messages. Raises KeyError if there is none."""
        return self._advertised[node][port]

    def node_of(self, address: str) -> str:
        """The node behind an advertised address; "" if it is nobody's."""
        return self._node_of.get(address, "")

    def name_of(self, address: str) -> str:
        """The node behind an advertised address; the address itself of one that is not configured,
        such as an original's that the controllers told of."""
        return self.node_of(address) or address

    def address_of(self, name: str, port: str) -> str:
        """The advertised address behind a name of ``name_of``, which may be one itself."""
        return self._advertised[name][port] if name in self._advertised else name

    def dial(self, address: str) -> tuple[str, int]:
        """Where to connect for an advertised address; one that is nobody's is dialled as it is.

        Raises BrokerError if it is no address.
        """
        return parse_address(self._dial.get(address, address))


def controller_addresses(config: RocketConfig) -> tuple[str, ...]:
    """Where a broker asks for controllers: ``controller_addr``, addresses with ";" between them, or
    else the advertised addresses of the nodes that host one. Raises BrokerError.
    """
    given = [part.strip() for part in config.broker.controller_addr.split(";") if part.strip()]
    for address in given:
        parse_address(address)
    if given:
        return tuple(dict.fromkeys(given))
    known = {peer.name: peer.advertised for peer in config.peers} | {config.name: config.advertised}
    return tuple(known[node]["controller"] for node in config.nodes_with("controller"))


def parse_address(address: str) -> tuple[str, int]:
    """("host", port) of "host:port". Raises BrokerError."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        raise BrokerError(f"{address!r} is no address: host:port is wanted")
    return host, int(port)
