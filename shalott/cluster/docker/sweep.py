"""Removing what dead harnesses left in Docker and in the host's firewall.

Everything a run makes says whose it is (cluster/docker/names.py). What belongs to a live process,
or to one that can't be judged from here, stays. The network goes last: as long as it is there,
the run's firewall table is known by the network's labels.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import docker
import docker.errors
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from shalott.cluster.disks.mounting import sweep_disks
from shalott.cluster.docker.engine import Engine
from shalott.cluster.docker.firewall import list_tables, remove_table
from shalott.cluster.docker.names import (
    LABEL_KEEP,
    LABEL_OWNER,
    LABEL_RUN,
    LABEL_TOKEN,
    TABLE_PATTERN,
)
from shalott.cluster.docker.packets import sweep_engines
from shalott.cluster.owner import liveness, parse_owner, runs
from shalott.core.errors import HarnessError

FREE_WITHIN_S = 20
POLL_S = 0.05


@dataclass(slots=True)
class Remains:
    """What is there of one run."""

    run: str = ""
    owner: str = ""
    kept: bool = False
    containers: list[str] = field(default_factory=list)
    volumes: list[str] = field(default_factory=list)
    networks: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        counts = {
            "container": len(self.containers),
            "volume": len(self.volumes),
            "network": len(self.networks),
        }
        return ", ".join(f"{n} {name}{'s' * (n > 1)}" for name, n in counts.items() if n)


async def sweep_docker(engine: Engine, *, kept: bool, tell_kept: bool = False) -> list[str]:
    """Remove what dead harnesses left; ``kept``: also what was left running on purpose, of which is
    told otherwise if ``tell_kept``. Says what was removed."""
    sentences = await sweep_disks()  # or the volumes below them could not be removed
    sentences += sweep_engines()
    tables = await list_tables()  # before the networks: a live run makes its network first
    remains = await engine.call(lambda api: find_remains(api, LABEL_RUN))
    for token, found in sorted(remains.items()):
        owner = parse_owner(found.owner)
        state = liveness(owner) if owner else "unknown"
        if state == "unknown":
            sentences.append(
                f"left alone: {found} of run {found.run}, since its harness can't be seen from here"
            )
        elif state == "dead" and found.kept and not kept:
            if tell_kept:
                sentences.append(
                    f"left alone: {found} of run {found.run}, which was to be kept; `shalott clean"
                    " --kept` removes it"
                )
        elif state == "dead":
            await remove_run(engine, token, tables)
            sentences.append(f"removed {found} that run {found.run} had left behind")
    for table in tables:
        match = TABLE_PATTERN.match(table)
        if match and match[1] not in remains and not runs(int(match[2]), int(match[3])):
            await remove_table(table)
            sentences.append(f"removed the firewall table {table} that a dead run had left behind")
    return sentences


def find_remains(api: docker.APIClient, label: str) -> dict[str, Remains]:
    """By the run's token: all that carries ``label``. Blocks."""
    remains: dict[str, Remains] = {}

    def of(labels: Mapping[str, str]) -> Remains:
        entry = remains.setdefault(labels.get(LABEL_TOKEN, ""), Remains())
        entry.run = labels.get(LABEL_RUN, "")
        entry.owner = labels.get(LABEL_OWNER, "")
        entry.kept = entry.kept or LABEL_KEEP in labels
        return entry

    filters = {"label": label}
    for container in api.containers(all=True, filters=filters):
        of(container["Labels"]).containers.append(container["Id"])
    for volume in api.volumes(filters=filters)["Volumes"] or ():
        of(volume["Labels"]).volumes.append(volume["Name"])
    for network in api.networks(filters=filters):
        of(network["Labels"]).networks.append(network["Id"])
    return remains


async def remove_run(engine: Engine, token: str, tables: Sequence[str]) -> None:
    """Remove all of one run: containers, then its firewall table, volumes and network."""
    remains = await engine.call(lambda api: find_remains(api, f"{LABEL_TOKEN}={token}"))
    found = remains.get(token, Remains())
    failed: list[HarnessError] = []

    async def remove(function: Callable[[docker.APIClient], object]) -> None:
        try:
            await engine.call(lambda api: _ignore_absent(lambda: function(api)))
        except HarnessError as error:
            failed.append(error)  # what can be removed is removed first

    def container(name: str) -> Callable[[docker.APIClient], object]:
        return lambda api: remove_when_free(lambda: api.remove_container(name, force=True, v=True))

    def volume(name: str) -> Callable[[docker.APIClient], object]:
        return lambda api: remove_when_free(lambda: api.remove_volume(name))

    def network(name: str) -> Callable[[docker.APIClient], object]:
        return lambda api: remove_when_free(lambda: api.remove_network(name))

    # One at a time: Docker 20.10 has locked up when three left a network at once.
    for name in found.containers:
        await remove(container(name))
    for table in tables:
        match = TABLE_PATTERN.match(table)
        if match and match[1] == token:
            await remove_table(table)
    await asyncio.gather(
        *(remove(volume(name)) for name in found.volumes),
        *(remove(network(name)) for name in found.networks),
    )
    if failed:
        raise failed[0]


def remove_when_free(remove: Callable[[], object]) -> None:
    """Wait for the containers that use it, if another sweeper is about to remove them; or for a
    container that ended while it was being killed, which Podman calls improper. Blocks."""
    removing = Retrying(
        stop=stop_after_delay(FREE_WITHIN_S),
        wait=wait_fixed(POLL_S),
        retry=retry_if_exception(_is_in_use),
        reraise=True,
    )
    removing(remove)


def _is_in_use(error: BaseException) -> bool:
    return isinstance(error, docker.errors.APIError) and (
        any(word in str(error) for word in ("in use", "active endpoints", "state improper"))
    )


def _ignore_absent(function: Callable[[], object]) -> None:
    try:
        function()
    except docker.errors.NotFound:
        pass
    except docker.errors.APIError as error:
        # Two sweepers may meet; the other one is at it already.
        if error.status_code != 409 or "already in progress" not in str(error):
            raise
