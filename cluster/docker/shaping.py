"""Delaying, throttling and losing what one node sends to others, with tc in the sender's network
namespace.

A htb class for each shaped destination, unlimited for the rest; inside it netem if there is a
delay or a loss. Not every kernel has the parts, so ``shaping_capabilities`` tries them in a
namespace of its own before a run relies on them. ``read_shape`` reads back what the kernel says is
in force.
"""

from __future__ import annotations

import ipaddress
import re
import subprocess
from collections.abc import Mapping

from shalott.cluster.base import LinkShape
from shalott.cluster.docker.programs import has_program, is_root

UNLIMITED = "10gbit"
BURST_BYTES = 32768
UNSHAPED = LinkShape()
BITS = {"": 1, "K": 1_000, "M": 1_000_000, "G": 1_000_000_000}
MILLISECONDS = {"us": 0.001, "ms": 1, "s": 1000}


def shaping_capabilities() -> frozenset[str]:
    """Which of delay, throttle and loss this host's kernel can make."""
    if not (is_root() and has_program("tc") and has_program("unshare")):
        return frozenset()
    trials = {
        "delay": LinkShape(delay_ms=1),
        "throttle": LinkShape(rate_bytes_s=1_000_000),
        "loss": LinkShape(loss=0.01),
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


def qdisc_script(shapes: Mapping[str, LinkShape], device: str = "eth0") -> str:
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
        if shape.delay_ms or shape.loss:
            netem = "netem limit 100000"
            netem += f" delay {shape.delay_ms}ms" if shape.delay_ms else ""
            netem += f" loss {shape.loss * 100:g}%" if shape.loss else ""
            lines.append(f"tc qdisc add dev {device} parent 1:{number} handle {number}: {netem}")
        match = f"u32 match ip dst {address}/32 flowid 1:{number}"
        lines.append(f"tc filter add dev {device} parent 1: protocol ip prio 1 {match}")
    return "\n".join(lines)


def listing_script(device: str = "eth0") -> str:
    """A shell script that prints what ``read_shape`` reads."""
    return "\n".join(f"tc {part} show dev {device}" for part in ("filter", "class", "qdisc"))


def read_shape(listing: str, address: str) -> LinkShape:
    """How the listed device sends to an address."""
    word = f"{int(ipaddress.IPv4Address(address)):08x}"
    found = re.search(rf"flowid 1:(\d+)[^\n]*\n\s*match {word}/ffffffff at 16", listing)
    if found is None:
        return UNSHAPED
    number = found[1]
    rate = re.search(rf"class htb 1:{number} [^\n]*\brate (\d+)([KMG]?)bit", listing)
    bits = int(rate[1]) * BITS[rate[2]] if rate else 0
    netem = re.search(rf"qdisc netem {number}: ([^\n]*)", listing)
    delay = re.search(r"\bdelay ([\d.]+)(us|ms|s)\b", netem[1]) if netem else None
    loss = re.search(r"\bloss ([\d.]+)%", netem[1]) if netem else None
    return LinkShape(
        delay_ms=float(delay[1]) * MILLISECONDS[delay[2]] if delay else 0,
        rate_bytes_s=0 if bits >= 10 * BITS["G"] else bits // 8,
        loss=float(loss[1]) / 100 if loss else 0,
    )
