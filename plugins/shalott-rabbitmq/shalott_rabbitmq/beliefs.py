"""What nodes of RabbitMQ believe of queues, and whether they agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shalott.api import Observation

PREFIX = "rabbit@"


def short_name(name: str) -> str:
    return name.removeprefix(PREFIX)


def claim_of(node: str, queue: Mapping[str, object]) -> Mapping[str, object]:
    """What a listed queue says of ``node``'s role, as ``node`` answered."""
    kind = queue["type"]
    leader = short_name(str(queue["node"] if kind == "classic" else queue.get("leader") or ""))

    def names(which: str) -> list[str]:
        told = queue.get(which, ())
        return sorted(short_name(str(name)) for name in told) if isinstance(told, list) else []

    followers = [member for member in names("members") if member != leader]
    role = "master" if node == leader else "mirror" if node in followers else "none"
    return {
        "group": queue["name"],
        "kind": kind,
        "role": role,
        "epoch": 0,
        "master": leader,
        "mirrors": followers,
        "synchronised": followers,  # the election keeps members from leading that are behind
        "online": names("online"),
        # A stale leader passes on what it is given, and acknowledges nothing.
        "by_majority": kind != "classic",
        "state": queue.get("state"),
    }


def why_unsettled(
    seen: Mapping[str, Observation | None], queues: Sequence[str], replicas: int
) -> str:
    """Settled: every node runs with all others, and each queue has one leader and its members,
    as all of them say."""
    for node, answer in seen.items():
        if answer is None:
            return f"{node} can't be asked"
        if missing := sorted(set(seen) - set(answer["running"])):
            return f"{node} doesn't run with {', '.join(missing)}"
        if answer["partitions"]:
            return f"{node} reports a partition from {', '.join(answer['partitions'])}"
        claims = {claim["group"]: claim for claim in answer["claims"]}
        for queue in queues:
            if (reason := why_queue(claims.get(queue), min(replicas, len(seen)))) != "":
                return f"queue {queue}: {node} says that {reason}"
    for queue in queues:
        masters = {
            claim["master"]
            for answer in seen.values() if answer is not None
            for claim in answer["claims"] if claim["group"] == queue
        }  # fmt: skip
        if len(masters) != 1:
            return f"queue {queue}: its leader is {' or '.join(sorted(map(str, masters)))}"
    return ""


def why_queue(claim: Mapping[str, object] | None, wanted: int) -> str:
    if claim is None:
        return "it is not there"
    if claim["state"] != "running" or not claim["master"]:
        return f"it is {claim['state']}, led by {claim['master'] or 'no node'}"
    online = claim["online"]
    assert isinstance(online, list)
    if claim["kind"] != "classic" and len(online) < wanted:
        return f"{len(online)} of {wanted} members are there"
    return ""
