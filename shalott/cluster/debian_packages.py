"""Which Debian packages are on a node, and which of them are not the versions that were pinned.

Pins are apt's own preferences (apt_preferences(5)), a file ``pins.pref`` beside an image's
Dockerfile: apt passes over a pin whose version the archive does not have, and takes what there is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from shalott.cluster.cluster import Cluster
from shalott.core.errors import HarnessError

PINS = "pins.pref"
TIMEOUT_MS = 10_000


async def installed_packages(
    cluster: Cluster, node: str, names: Sequence[str]
) -> Mapping[str, str]:
    """Name -> version of those that are installed on a running node; names may be globs.

    Raises HarnessError: there is none of them, or no dpkg.
    """
    shape = r"${Package} ${Version} ${db:Status-Status}\n"
    done = await cluster.processes.run_command(
        node, ("dpkg-query", "-W", "-f", shape, *names), TIMEOUT_MS
    )
    # One unknown name makes the exit code 1; the others are told nevertheless.
    rows = [line.split() for line in done.output.splitlines()]
    found = {row[0]: row[1] for row in rows if len(row) == 3 and row[2] == "installed"}
    if not found:
        said = done.output.strip().splitlines()
        raise HarnessError(f"dpkg-query on {node} says {said[-1] if said else 'nothing'}")
    return dict(sorted(found.items()))


def read_pins(text: str) -> dict[str, str]:
    """Package, or glob of packages -> version, out of a ``pins.pref``."""
    pins: dict[str, str] = {}
    for stanza in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in stanza.splitlines() if ": " in line)
        version = fields.get("Pin", "").removeprefix("version ")
        for name in fields.get("Package", "").split():
            pins[name] = version
    return pins


def unpinned(installed: Mapping[str, str], pins: Mapping[str, str]) -> Iterator[str]:
    """A sentence for each pin that does not hold."""
    for pattern, version in pins.items():
        others = {
            name: found
            for name, found in installed.items()
            if fnmatchcase(name, pattern) and found != version
        }
        if others:
            name, found = next(iter(others.items()))
            more = f" and {len(others) - 1} more of {pattern}" if len(others) > 1 else ""
            yield (
                f"The image has {name} {found}{more}, and not {version}, which is pinned: the"
                " archive that it was built from did not have it."
            )
