"""The hosts of one run: where each node is, and its agent."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from shalott.cluster.nodes import NodeSpec
from shalott.cluster.ssh.agent_link import AgentLink
from shalott.cluster.ssh.connection import Connection
from shalott.cluster.ssh.facts import HostFacts
from shalott.cluster.ssh.forwarding import Forwards
from shalott.core.errors import HarnessError
from shalott.core.plan import HostPlan

THREADS_A_HOST = 4


class HostNodes:
    """What the parts share; no host is connected at first.

    ``hosts``: of the plan, by node. ``links``: to their agents. ``forwards``: of hosts behind a
    jump host. ``agents``: paths on the hosts. ``addresses``: at which the other nodes reach one.
    """

    def __init__(self, hosts: Mapping[str, HostPlan], run_id: str) -> None:
        self.nodes = tuple(hosts)
        self.hosts = hosts
        self.run_id = run_id
        self._token = hashlib.sha256(run_id.encode()).hexdigest()[:12]
        self.threads: ThreadPoolExecutor | None = None
        self.links: dict[str, AgentLink] = {}
        self.forwards: dict[str, Forwards] = {}
        self.facts: dict[str, HostFacts] = {}
        self.agents: dict[str, str] = {}
        self.specs: dict[str, NodeSpec] = {}
        self.ports: Mapping[str, int] = {}
        self.addresses: dict[str, str] = {}

    def start_threads(self) -> ThreadPoolExecutor:
        self.threads = ThreadPoolExecutor(
            THREADS_A_HOST * len(self.nodes), thread_name_prefix="ssh"
        )
        return self.threads

    def forget(self) -> None:
        """All connections are closed."""
        for each in (self.links, self.facts, self.agents, self.specs):
            each.clear()

    def agent(self, node: str) -> AgentLink:
        if node not in self.links:
            raise HarnessError(f"{node} is not booted")
        return self.links[node]

    def connection(self, node: str) -> Connection:
        connection = self.links[node].connection if node in self.links else None
        if connection is None:
            over = self.links[node].why_over if node in self.links else ""
            raise HarnessError(over or f"there is no connection to {node}")
        return connection

    def name(self, node: str) -> str:
        return f"{self._token}-{node}"

    def directory(self, node: str) -> str:
        return f"{self.facts[node].directory}/runs/{self.name(node)}"

    def filled(self, node: str, text: str) -> str:
        filled = text.replace("{config}", f"{self.directory(node)}/config")
        filled = filled.replace("{data}", f"{self.directory(node)}/data")
        return filled.replace("{python}", self.hosts[node].python)
