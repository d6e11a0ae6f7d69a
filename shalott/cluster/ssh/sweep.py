"""Removing from hosts what dead harnesses left: the agent does it, as soon as it is told.

An agent whose harness is gone undoes everything by itself when its lease is over. Here it is told
at once; and where the agent was killed too, or the host was started anew, what is left is removed.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from shalott.cluster.owner import liveness, parse_owner
from shalott.cluster.ssh.connection import Connection
from shalott.cluster.ssh.facts import HostFacts, look, refuse_unfit
from shalott.cluster.ssh.inventory import title_of
from shalott.cluster.ssh.upload import put_agent
from shalott.core.errors import ShalottError
from shalott.core.plan import HostPlan

# Becomes root if it is not root already, and then the command.
AS_ROOT = 'if [ "$(id -u)" = 0 ]; then exec "$@"; else exec sudo -n "$@"; fi'


def agent_command(host: HostPlan, agent: str, *words: str) -> str:
    """The shell command that runs the agent with ``words``."""
    command = [host.python, "-I", agent, *words]
    if host.sudo:
        command = ["sh", "-c", AS_ROOT, "sh", *command]
    return shlex.join(command)


def sweep_host(connection: Connection, facts: HostFacts, agent: str) -> list[str]:
    """End what belongs to dead harnesses, and what has no agent any more: nothing else would undo
    it. One sentence for each run. Raises HarnessError."""
    sentences = []
    title = title_of(connection.host)
    for state in list_runs(connection, facts, agent):
        owner = parse_owner(state["owner"])
        judged = liveness(owner) if owner is not None else "unknown"
        if state["runs"] and judged != "dead":
            if judged == "unknown":
                sentences.append(
                    f"left alone: run {state['run']} on {title}, since its harness can't be seen"
                    " from here"
                )
            continue
        end_run(connection, agent, state["name"], state["directory"])
        run = f"run {state['run']}" if state["run"] else f"an earlier run ({state['name']})"
        sentences.append(f"removed the node and the faults of {run} from {title}")
    return sentences


def list_runs(connection: Connection, facts: HostFacts, agent: str) -> Sequence[Mapping[str, Any]]:
    """What the agents of the host wrote down."""
    command = agent_command(connection.host, agent, "list", f"{facts.directory}/runs")
    lines = connection.run(command).output.splitlines()
    return [state for line in lines if "name" in (state := json.loads(line))]


def end_run(connection: Connection, agent: str, name: str, directory: str) -> None:
    connection.run(agent_command(connection.host, agent, "end", name, directory))


def sweep_hosts(hosts: Sequence[HostPlan]) -> list[str]:
    """Sweep every host, and remove what was uploaded where nothing runs any more."""
    with ThreadPoolExecutor(max(1, len(hosts)), thread_name_prefix="ssh-sweep") as threads:
        return [sentence for each in threads.map(_sweep_one, hosts) for sentence in each]


def _sweep_one(host: HostPlan) -> list[str]:
    try:
        connection = Connection(host)
        try:
            facts = look(connection)
            refuse_unfit(host, facts)
            agent = put_agent(connection, facts)
            sentences = sweep_host(connection, facts, agent)
            if not list_runs(connection, facts, agent):
                directory = shlex.quote(facts.directory)
                connection.run(
                    f"cd {directory} && rm -rf agent-*.pyz* broker-* faultfs-*; rmdir runs; cd;"
                    f" rmdir {directory}"
                )
            return sentences
        finally:
            connection.close()
    except ShalottError as error:
        return [f"{title_of(host)} could not be swept: {error}"]
