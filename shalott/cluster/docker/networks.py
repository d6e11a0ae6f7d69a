"""A run's private network: a /24 of its own, chosen so that it collides with nothing on this
host."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import docker
import docker.errors
import docker.types

from shalott.core.errors import BootFailed

PREFIX = "10.213"  # little used; docker's own networks start at 172.17
ATTEMPTS = 32


def create_network(api: docker.APIClient, name: str, labels: Mapping[str, str]) -> str:
    """Make the network. Returns the first three bytes of its addresses. Blocks."""
    error: Exception | None = None
    # Which subnet it is decides nothing in a run, so this need not be seeded.
    for third in random.sample(range(256), ATTEMPTS):
        subnet = f"{PREFIX}.{third}"
        if _is_routed(subnet):
            continue
        pool = docker.types.IPAMPool(subnet=f"{subnet}.0/24", gateway=f"{subnet}.1")
        try:
            api.create_network(
                name,
                driver="bridge",
                ipam=docker.types.IPAMConfig(pool_configs=[pool]),
                labels=dict(labels),
                check_duplicate=True,
            )
        except docker.errors.APIError as refused:
            if "overlap" not in str(refused):
                raise
            error = refused
            continue
        return subnet
    raise BootFailed(f"no free subnet in {PREFIX}.0.0/16: {error}")


def _is_routed(subnet: str) -> bool:
    """Whether the host has a route into this /24 already: a VPN's, say."""
    try:
        lines = Path("/proc/net/route").read_text().splitlines()[1:]
    except OSError:
        return False
    wanted = _number(f"{subnet}.0")
    for fields in (line.split() for line in lines):
        destination, mask = (int.from_bytes(bytes.fromhex(fields[i]), "little") for i in (1, 7))
        if mask and (wanted & mask) == destination:
            return True
        if mask > 0xFFFFFF00 and (destination & 0xFFFFFF00) == wanted:
            return True
    return False


def _number(address: str) -> int:
    return int.from_bytes(bytes(int(part) for part in address.split(".")), "big")
