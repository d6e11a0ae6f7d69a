"""What a configuration and the bugs that are switched on mean for the parts of HAService."""

from __future__ import annotations

from shalott.broker.base.env import Env
from shalott.broker.rocket.config import RocketConfig
from shalott.broker.rocket.ha.agreement import AgreementRules
from shalott.broker.rocket.ha.client import ClientRules
from shalott.broker.rocket.ha.session import SessionRules


def session_rules(env: Env, config: RocketConfig) -> SessionRules:
    """A master's."""
    return SessionRules(
        batch_bytes=config.ha.transfer_batch_bytes,
        heartbeat_interval_ms=config.ha.heartbeat_interval_ms,
        housekeeping_interval_ms=config.ha.housekeeping_interval_ms,
        segment_bytes=config.store.segment_bytes,
        last_file_only=config.ha.sync_from_last_file or env.has_bug("KB-RKT-04"),
        trusts_reports=env.has_bug("KB-RKT-01"),
        acks_beyond_end=env.has_bug("KB-RKT-06"),
        stalls_on_missing=env.has_bug("KB-RKT-03"),
    )


def client_rules(env: Env, config: RocketConfig) -> ClientRules:
    """A slave's."""
    return ClientRules(
        heartbeat_interval_ms=config.ha.heartbeat_interval_ms,
        housekeeping_interval_ms=config.ha.housekeeping_interval_ms,
        reconnect_interval_ms=config.ha.reconnect_interval_ms,
        ignores_heartbeats=env.has_bug("KB-RKT-02"),
    )


def agreement_rules(config: RocketConfig) -> AgreementRules:
    """Of a slave that looks for where its log and its master's part."""
    return AgreementRules(
        segment_bytes=config.store.segment_bytes,
        connect_ms=config.ha.reconnect_interval_ms,
        silence_ms=config.ha.housekeeping_interval_ms,
    )
