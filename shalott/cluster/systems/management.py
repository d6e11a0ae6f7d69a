"""What administering any system with RabbitMQ's management API has in common."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote

from tenacity import retry_if_exception, wait_fixed

from shalott.cluster.cluster import Cluster
from shalott.cluster.http import Management
from shalott.cluster.waiting import retrying
from shalott.core.errors import BootFailed, ClientError, Definite
from shalott.core.json_value import Json, JsonObject

POLICY_NAME = "shalott"
DEFAULT_VHOST = "/"
RABBIT_PORTS: Mapping[str, int] = {"amqp": 5672, "management": 15672, "cluster": 25672}
CONFIGURE_WITHIN_S = 15
RETRY_S = 0.1


def management(cluster: Cluster, node: str, timeout_ms: int = 3000) -> Management:
    return Management(cluster.endpoint(node, "management"), timeout_ms=timeout_ms)


def api_path(kind: str, *names: str) -> str:
    """What is of that kind and has these names, which may have any characters."""
    return "/".join(("/api", kind, *(quote(name, safe="") for name in names)))


def queue_path(queue: str, vhost: str) -> str:
    return api_path("queues", vhost, queue)


async def delete_queue(
    cluster: Cluster, node: str, queue: str, timeout_ms: int, vhost: str
) -> None:
    """Ask ``node`` to delete it. Raises ClientError."""
    await management(cluster, node, timeout_ms).delete(queue_path(queue, vhost))


async def set_up(cluster: Cluster, vhost: str, policy: JsonObject | None) -> None:
    """Make the virtual host, unless it is there from the start, and its policy, if any: of all
    queues that are the run's. Raises BootFailed."""
    node = cluster.nodes[0]
    if vhost != DEFAULT_VHOST:
        await put(cluster, node, api_path("vhosts", vhost), {})
    if policy is not None:
        await put(cluster, node, *policy_of(cluster, vhost, policy))


def policy_of(cluster: Cluster, vhost: str, policy: JsonObject) -> tuple[str, JsonObject]:
    """Where the policy of the run's queues is put, and what."""
    own = f"^{re.escape(cluster.prefix)}"
    definition: JsonObject = {"pattern": own, "definition": policy, "apply-to": "queues"}
    return api_path("policies", vhost, f"{cluster.prefix}{POLICY_NAME}"), definition


async def put(cluster: Cluster, node: str, path: str, body: Json) -> None:
    """Put until it is certainly done: it may be repeated. Raises BootFailed."""

    async def attempt() -> None:
        await management(cluster, node, timeout_ms=5000).put(path, body)

    putting = retrying(CONFIGURE_WITHIN_S, wait_fixed(RETRY_S), retry_if_exception(_may_pass))
    try:
        await putting(attempt)
    except ClientError as error:
        raise BootFailed(f"{node} can't be configured: {error}") from error


def _may_pass(error: BaseException) -> bool:
    """Whether a put that failed so may succeed later. What was refused with 4xx is final."""
    refused = isinstance(error, Definite) and " answered with 4" in str(error)
    return isinstance(error, ClientError) and not refused
