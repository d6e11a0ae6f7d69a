"""Who is connected to a master, by its kernel's table of connections.

Releases before 5 answer no request about their slaves' connections, though a master of theirs
turns every message away while it has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address

TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_ESTABLISHED = "01"
_MAPPED = "0000000000000000FFFF0000"  # of IPv6: before an address of IPv4


def hosts_at(table: str, port: int) -> Sequence[str]:
    """IPv4 addresses with an established connection to a port of this machine, each once.

    ``table``: lines of proc_net(5), of tcp and tcp6 alike; addresses are hexadecimal words of four
    bytes, the least significant first. Other lines say nothing.
    """
    found: dict[str, None] = {}
    for line in table.splitlines():
        words = line.split()
        if words[3:4] != [_ESTABLISHED] or words[1].rpartition(":")[2] != f"{port:04X}":
            continue
        address = words[2].rpartition(":")[0].removeprefix(_MAPPED)
        if len(address) == 8:
            found[str(IPv4Address(bytes.fromhex(address)[::-1]))] = None
    return list(found)
