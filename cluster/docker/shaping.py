"""Delaying and throttling what one node sends to others, with tc in the sender's network namespace.

A htb class for each shaped destination, unlimited for the rest; inside it netem if there is a
delay. Not every kernel has the parts, so ``shaping_capabilities`` tries them in a namespace of
its own before a run relies on them.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from cluster.docker.programs import has_program, is_root

UNLIMITED = "10gbit"
BURST_BYTES = 32768


@dataclass(frozen=True, slots=True)
class Shape:
    """Zero means: as it is."""

    delay_ms: float = 0
    rate_bytes_s: int = 0


def shaping_capabilities() -> frozenset[str]:
    """Which of delay and throttle this host's kernel can make."""
    if not (is_root() and has_program("tc") and has_program("unshare")):
        return frozenset()
    trials = {
        "delay": Shape(delay_ms=1),
        "throttle": Shape(rate_bytes_s=1_000_000),
    }
    works = {
        name for name, shape in trials.items() if _try(qdisc_script({"10.0.0.1": shape}, "lo"))
    }
    return frozenset(works)


def _try(script: str) -> bool:
    result = subprocess.run(
        ["unshare", "-n", "sh", "-c", script], capture_output=True, timeout=10, check=False, cwd="/"
    )
    return result.returncode == 0


def qdisc_script(shapes: Mapping[str, Shape], device: str = "eth0") -> str:
    """A shell script that makes ``device`` send to each address as its shape says, and to others
    freely."""
    clear = f"tc qdisc del dev {device} root 2>/dev/null || true"
    if not shapes:
        return clear
    lines = [
        "set -e",
        clear,
        f"tc qdisc add dev {device} root handle 1: htb default 1",
        f"tc class add dev {device} parent 1: classid 1:1 htb rate {UNLIMITED}",
    ]
    for number, (address, shape) in enumerate(sorted(shapes.items()), start=10):
        rate = (
            f"{shape.rate_bytes_s * 8}bit burst {BURST_BYTES}" if shape.rate_bytes_s else UNLIMITED
        )
        lines.append(f"tc class add dev {device} parent 1: classid 1:{number} htb rate {rate}")
        if shape.delay_ms:
            netem = f"netem delay {shape.delay_ms}ms limit 100000"
            lines.append(f"tc qdisc add dev {device} parent 1:{number} handle {number}: {netem}")
        match = f"u32 match ip dst {address}/32 flowid 1:{number}"
        lines.append(f"tc filter add dev {device} parent 1: protocol ip prio 1 {match}")
    return "\n".join(lines)
