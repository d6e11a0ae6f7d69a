"""The names and labels of everything that a run makes in Docker and in the host's firewall."""

from __future__ import annotations

import hashlib
import re

from shalott.cluster.owner import Owner

LABEL_RUN = "shalott.run"  # the run's id, as the harness gave it
LABEL_TOKEN = "shalott.token"  # the same, fit for names
LABEL_OWNER = "shalott.owner"
LABEL_NODE = "shalott.node"
LABEL_KEEP = "shalott.keep"  # set: outlives its harness on purpose, until `shalott clean`

TABLE_PREFIX = "shalott_"
TABLE_PATTERN = re.compile(r"^shalott_([a-z0-9]+)_(\d+)_(\d+)$")


def run_token(run_id: str) -> str:
    """Short, of lower-case letters and digits only, and different for different runs."""
    readable = re.sub("[^a-z0-9]", "", run_id.lower())[-12:]
    return readable + hashlib.sha256(run_id.encode()).hexdigest()[:6]


def run_labels(run_id: str, owner: Owner, keep: bool) -> dict[str, str]:
    labels = {LABEL_RUN: run_id, LABEL_TOKEN: run_token(run_id), LABEL_OWNER: str(owner)}
    return labels | {LABEL_KEEP: "true"} if keep else labels


def network_name(token: str) -> str:
    return f"shalott-{token}"


def resource_name(token: str, node: str) -> str:
    """Of a node's container and of its volume."""
    return f"shalott-{token}-{node}"


def volume_name(token: str, volume: str) -> str:
    """Of a volume that several containers use; no node is called so."""
    return f"shalott-{token}_{volume}"


def table_name(token: str, owner: Owner) -> str:
    """Of the run's nftables table. Tables have no labels, so the name says whose it is."""
    return f"{TABLE_PREFIX}{token}_{owner.pid}_{owner.start_ticks}"
