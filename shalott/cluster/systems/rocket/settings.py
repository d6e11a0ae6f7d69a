"""A plan's settings of a RocketMQ system: dotted names of RocketConfig, checked before boot.

``store.flush=sync``, ``ha.in_sync_replicas=2``, ``raft.heartbeat_interval_ms=300``: a section of
broker/rocket/config.py and a field of it, or a field of the whole (``name_server_scan_interval_ms
=2000``). What a node is (its name, ports, services, broker id) is not a setting. With master and
slaves, ``broker.role`` is the master's: slaves are slaves.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

import msgspec

from shalott.broker.rocket.config import (
    BrokerConfig,
    ControllerConfig,
    HaConfig,
    RaftConfig,
    RocketConfig,
    StoreConfig,
)
from shalott.core.errors import UsageError

SECTIONS: Mapping[str, type[msgspec.Struct]] = {
    "broker": BrokerConfig,
    "store": StoreConfig,
    "ha": HaConfig,
    "raft": RaftConfig,
    "controller": ControllerConfig,
}
WHOLE = ("name_server_scan_interval_ms", "name_server_broker_timeout_ms")
IDENTITY = (  # the harness's own
    *("broker.broker_id", "broker.broker_name", "broker.cluster_name", "broker.controller_addr"),
)
# Sections that a system has no use for.
FOREIGN: Mapping[str, tuple[str, ...]] = {
    "master-slave": ("raft", "controller"),
    "dledger": ("ha", "controller"),
    "controller": (),
}


def setting_names(system: str) -> tuple[str, ...]:
    """All that ``--policy`` may set in a system."""
    names = [
        f"{section}.{field}"
        for section, struct in SECTIONS.items()
        if section not in FOREIGN[system]
        for field in struct.__struct_fields__
    ]
    unset = (*IDENTITY, *(() if system == "master-slave" else ("broker.role",)))
    return (*(name for name in names if name not in unset), *WHOLE)


def check_settings(system: str, settings: Mapping[str, Any]) -> None:
    """Raise UsageError, in one sentence, for a name that is none or a value that can't be."""
    known = setting_names(system)
    for name in settings:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=2, cutoff=0.5) or known[:2]
            raise UsageError(
                f"--policy {name}: {system} has no such setting; did you mean"
                f" {' or '.join(near)}? (shalott/broker/rocket/config.py lists them)"
            )
    if settings.get("broker.role") == "SLAVE":
        raise UsageError(
            "--policy broker.role=SLAVE: it is the first node's role, the master's: use"
            " ASYNC_MASTER or SYNC_MASTER"
        )
    for section, values in by_section(settings).items():
        try:
            if section:
                msgspec.convert(values, SECTIONS[section])
            else:
                _convert_whole(values)
        except msgspec.ValidationError as error:
            name, value = _culprit(section, values, str(error))
            raise UsageError(f"--policy {name}={value}: {_reason(str(error))}") from error


def by_section(settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Fields by section; those of the whole under ""."""
    found: dict[str, dict[str, Any]] = {}
    for name, value in settings.items():
        section, dot, field = name.partition(".")
        found.setdefault(section if dot else "", {})[field if dot else name] = value
    return found


def _convert_whole(values: Mapping[str, Any]) -> None:
    """As fields of a configuration that is right otherwise."""
    blank = {"system": "dledger", "name": "n", "data_dir": "", "services": []}
    msgspec.convert({**blank, "ports": {}, "advertised": {}, **values}, RocketConfig)


def _culprit(section: str, values: Mapping[str, Any], complaint: str) -> tuple[str, Any]:
    """The setting that a complaint names by its path."""
    field = complaint.rpartition("$.")[2].strip("`")
    return (f"{section}.{field}" if section else field), values.get(field)


def _reason(complaint: str) -> str:
    return complaint.rpartition(" - at ")[0] or complaint
