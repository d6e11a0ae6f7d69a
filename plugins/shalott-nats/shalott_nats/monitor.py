"""What a server's monitoring port says: its Raft groups, their peers, and what its streams hold.

A server is a peer under an id made of its name, and a node that lost its disk comes back under
another name (system.py): ``node_of`` tells the node of either.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

import shalott.api as api

LEADER, META, META_GROUP = "LEADER", "meta", "_meta_"
LIFE = "@"  # between a node and when its disk was new, in a server's name


def node_of(server: str) -> str:
    return server.partition(LIFE)[0]


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """The name is empty where the server has not met it since it started."""

    name: str = ""


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Of a Raft group, as a node has it. ``peers``: the others, by id."""

    state: str
    term: int
    peers: dict[str, Peer] = {}


class Members(msgspec.Struct, frozen=True, kw_only=True):
    """Of a group, as its leader has it; a follower knows who leads."""

    leader: str = ""
    replicas: tuple[Peer, ...] = ()


class State(msgspec.Struct, frozen=True, kw_only=True):
    messages: int = 0
    last_seq: int = 0


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    cluster: Members = Members()
    state: State = State()
    stream_raft_group: str = ""


class Account(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    stream_detail: tuple[Stream, ...] = ()


class JetStreamState(msgspec.Struct, frozen=True, kw_only=True):
    meta_cluster: Members = Members()
    account_details: tuple[Account, ...] = ()


async def raft_groups(at: api.Management, path: str = "") -> dict[str, Group]:
    """By name, of one account. Before there is a first, a server says that there is none."""
    answer = await at.request("GET", f"/raftz{path}")
    if answer.status == 404:
        return {}
    try:
        told = msgspec.json.decode(answer.body, type=dict[str, dict[str, Group]])
    except msgspec.DecodeError as error:
        raise api.Definite(f"raftz: {error}") from error
    return {name: group for each in told.values() for name, group in each.items()}


async def jetstream_state(at: api.Management) -> JetStreamState:
    told = await at.get("/jsz?accounts=true&streams=true&raft=true")
    try:
        return msgspec.convert(told, JetStreamState)
    except msgspec.ValidationError as error:
        raise api.Definite(f"it answered with something else: {error}") from error


def claim_of(
    group: str, node: str, members: Members, raft: Group | None, state: State
) -> dict[str, object]:
    is_leader = raft is not None and raft.state == LEADER
    others = sorted({node_of(peer.name) for peer in members.replicas} - {node})
    return {
        "group": group,
        "role": "master" if is_leader else "mirror" if members.leader else "none",
        "epoch": 0 if raft is None else raft.term,
        "master": node if is_leader else node_of(members.leader),
        "mirrors": others,
        "synchronised": others,  # a majority is, whichever: no one waits for a certain one
        "state": "running" if members.leader else "down",
        "messages": state.messages,
        "last_offset": state.last_seq,
    }


def claims_of(
    seen: Mapping[str, api.Observation | None], group: str
) -> dict[str, Mapping[str, Any]]:
    """What each node that answered says of the group."""
    return {
        node: claim
        for node, answer in seen.items()
        for claim in (answer or {"claims": ()})["claims"]
        if claim["group"] == group
    }


def why_unsettled(
    before: Mapping[str, api.Observation | None],
    seen: Mapping[str, api.Observation | None],
    copies: Mapping[str, int],
) -> str:
    """Settled: each group has its copies and one leader, whom its members follow in one term, and
    they have what it had ``before``."""
    silent = sorted(node for node, answer in seen.items() if answer is None)
    if silent:
        return f"{', '.join(silent)} did not answer"
    for group, wanted in copies.items():
        claims = claims_of(seen, group)
        if len(claims) < wanted:
            return f"{group}: {len(claims)} of {wanted} copies"
        for what in ("master", "epoch"):
            told = {node: claim[what] for node, claim in claims.items()}
            if len(set(told.values())) > 1 or not all(told.values()):
                said = ", ".join(f"{node} says {each}" for node, each in told.items())
                return f"{group}: {what}: {said}"
        leaders = [c for c in claims_of(before, group).values() if c["role"] == "master"]
        end = max((claim["last_offset"] for claim in leaders), default=0)
        behind = sorted(node for node, claim in claims.items() if claim["last_offset"] < end)
        if behind:
            return f"{group}: {', '.join(behind)} has not come to {end}"
    return ""
