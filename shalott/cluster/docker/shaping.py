"""Which shapes of links this host's kernel can make with tc: each is tried."""

from __future__ import annotations

import subprocess

from shalott.cluster.capabilities import Can
from shalott.cluster.docker.programs import has_program, is_root
from shalott.cluster.packets.shaping import TRIALS, qdisc_script


def shaping_capabilities() -> Can:
    """Of TRIALS."""
    if not (is_root() and has_program("tc") and has_program("unshare")):
        return frozenset()
    return frozenset(
        name for name, shape in TRIALS.items() if _works(qdisc_script({"10.0.0.1": shape}, "lo"))
    )


def _works(script: str) -> bool:
    result = subprocess.run(
        ["unshare", "-n", "sh", "-c", script], capture_output=True, timeout=10, check=False, cwd="/"
    )
    return result.returncode == 0
