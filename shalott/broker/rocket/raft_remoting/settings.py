"""A group's timings and limits, from a node's configuration."""

from __future__ import annotations

from shalott.broker.raft.api import RaftSettings
from shalott.broker.rocket.config import RaftConfig


def settings_of(config: RaftConfig) -> RaftSettings:
    """ReadIndex needs an entry of the leader's own term, so a new leader appends one."""
    return RaftSettings(
        heartbeat_interval_ms=config.heartbeat_interval_ms,
        max_heartbeat_leak=config.max_heartbeat_leak,
        vote_min_ms=config.vote_min_ms,
        vote_max_ms=config.vote_max_ms,
        push_timeout_ms=config.push_timeout_ms,
        commit_push_interval_ms=config.commit_push_interval_ms,
        max_pending_entries=config.max_pending_requests,
        no_op_on_election=config.fast_advance_commit or config.read_index,
    )
