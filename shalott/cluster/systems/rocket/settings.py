"""A plan's settings of a RocketMQ system: dotted names of RocketConfig, checked before boot.

``store.flush=sync``, ``ha.in_sync_replicas=2``, ``raft.heartbeat_interval_ms=300``: a section of
broker/rocket/config.py and a field of it, or a field of the whole (``name_server_scan_interval_ms
=2000``). What a node is (its name, ports, services, broker id) is not a setting. With master and
slaves, ``broker.role`` is the master's: slaves are slaves.

RocketMQ's own names are taken too: ``flushDiskType=SYNC_FLUSH`` is as good as ``store.flush=sync``.
A plan holds our names, so that what reads it knows one word for one thing. Values of another unit
are converted, and what ours can't be is refused in upstream's words.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
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
from shalott.cluster.systems.record import Parameters
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


def check_settings(system: str, settings: Parameters) -> None:
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


def by_section(settings: Parameters) -> dict[str, dict[str, object]]:
    """Fields by section; those of the whole under ""."""
    found: dict[str, dict[str, object]] = {}
    for name, value in settings.items():
        section, dot, field = name.partition(".")
        found.setdefault(section if dot else "", {})[field if dot else name] = value
    return found


def _convert_whole(values: Parameters) -> None:
    """As fields of a configuration that is right otherwise."""
    blank = {"system": "dledger", "name": "n", "data_dir": "", "services": []}
    msgspec.convert({**blank, "ports": {}, "advertised": {}, **values}, RocketConfig)


def _culprit(section: str, values: Parameters, complaint: str) -> tuple[str, object]:
    """The setting that a complaint names by its path."""
    field = complaint.rpartition("$.")[2].strip("`")
    return (f"{section}.{field}" if section else field), values.get(field)


def _reason(complaint: str) -> str:
    return complaint.rpartition(" - at ")[0] or complaint


Convert = Callable[[Any], object]
UNIT_BYTES = 20  # of a consume queue
HOUR_MS = 3_600_000


def _same(value: object) -> object:
    return value


def _flush(value: object) -> str:
    words = {"SYNC_FLUSH": "sync", "ASYNC_FLUSH": "async"}
    if value not in words:
        raise ValueError(f"it is {' or '.join(words)}")
    return words[value]


def _units(value: float) -> int:
    return max(1, int(value) // UNIT_BYTES)


def _hours(value: float) -> int:
    return int(value) * HOUR_MS


# Ours by upstream's; of several each is set.
OWN_NAMES: Mapping[str, tuple[tuple[str, ...], Convert]] = {
    "flushDiskType": (("store.flush",), _flush),
    "flushIntervalCommitLog": (("store.flush_interval_ms",), _same),
    "syncFlushTimeout": (("store.flush_timeout_ms",), _same),
    "mappedFileSizeCommitLog": (("store.segment_bytes",), _same),
    "mappedFileSizeConsumeQueue": (("store.queue_segment_units",), _units),
    "maxMessageSize": (("store.max_message_bytes",), _same),
    "maxHashSlotNum": (("store.index_slots",), _same),
    "maxIndexNum": (("store.index_entries",), _same),
    "fileReservedTime": (("store.file_reserved_ms",), _hours),
    "cleanResourceInterval": (("store.clean_interval_ms",), _same),
    "diskMaxUsedSpaceRatio": (("store.disk_used_percent_max",), _same),
    "haSendHeartbeatInterval": (("ha.heartbeat_interval_ms",), _same),
    "haHousekeepingInterval": (("ha.housekeeping_interval_ms",), _same),
    "haTransferBatchSize": (("ha.transfer_batch_bytes",), _same),
    "haMaxGapNotInSync": (("ha.max_gap_not_in_sync_bytes",), _same),
    "slaveTimeout": (("ha.slave_timeout_ms",), _same),
    "inSyncReplicas": (("ha.in_sync_replicas",), _same),
    "minInSyncReplicas": (("ha.min_in_sync_replicas",), _same),
    "allAckInSyncStateSet": (("ha.all_ack_in_sync_state_set",), _same),
    "asyncLearner": (("ha.async_learner",), _same),
    "syncFromLastFile": (("ha.sync_from_last_file",), _same),
    "haMaxTimeSlaveNotCatchup": (("ha.max_time_slave_not_catchup_ms",), _same),
    "checkSyncStateSetPeriod": (("ha.check_sync_state_set_period_ms",), _same),
    "brokerRole": (("broker.role",), _same),
    "defaultTopicQueueNums": (("broker.default_queues",), _same),
    "autoCreateTopicEnable": (("broker.auto_create_topics",), _same),
    "slaveReadEnable": (("broker.slave_read_enable",), _same),
    "transactionTimeOut": (("broker.transaction_timeout_ms",), _same),
    "transactionCheckInterval": (("broker.transaction_check_interval_ms",), _same),
    "transactionCheckMax": (("broker.transaction_check_max",), _same),
    "registerNameServerPeriod": (("broker.register_interval_ms",), _same),
    "brokerHeartbeatInterval": (("broker.controller_heartbeat_interval_ms",), _same),
    "controllerHeartBeatTimeoutMills": (("broker.controller_heartbeat_timeout_ms",), _same),
    "syncBrokerMetadataPeriod": (("broker.sync_broker_metadata_period_ms",), _same),
    "syncControllerMetadataPeriod": (("broker.sync_controller_metadata_period_ms",), _same),
    "brokerElectionPriority": (("broker.election_priority",), _same),
    "brokerNotActiveTimeoutMillis": (("name_server_broker_timeout_ms",), _same),
    "scanNotActiveBrokerInterval": (
        ("name_server_scan_interval_ms", "controller.scan_not_active_broker_interval_ms"),
        _same,
    ),
    "scanInactiveMasterInterval": (("controller.scan_inactive_master_interval_ms",), _same),
    "electMasterMaxRetryCount": (("controller.elect_master_max_retry_count",), _same),
    "enableElectUncleanMaster": (("controller.enable_elect_unclean_master",), _same),
    "isProcessReadEvent": (("controller.is_process_read_event",), _same),
    "notifyBrokerRoleChanged": (("controller.notify_broker_role_changed",), _same),
}


def in_own_names(policy: Parameters, known: tuple[str, ...]) -> dict[str, object]:
    """``known``: the settings of the system; one that has some of several names takes those.

    A value of None takes a setting away. Raises UsageError.
    """
    found: dict[str, object] = {}
    for name, value in policy.items():
        own, convert = OWN_NAMES.get(name, ((name,), _same))
        for each in [one for one in own if one in known] or own:
            try:
                found[each] = value if value is None else convert(value)
            except (TypeError, ValueError) as error:
                raise UsageError(f"--policy {name}={value}: {error}") from error
    return found


_FLUSH_WORDS = {"sync": "SYNC_FLUSH", "async": "ASYNC_FLUSH"}


def in_upstream_names(policy: Parameters, kept: tuple[str, ...]) -> dict[str, object]:
    """The other way: of our settings those whose names begin with one of ``kept``, by upstream's
    names. What upstream has no name for, or measures in another unit, is left out."""
    found: dict[str, object] = {}
    for upstream, (own, convert) in OWN_NAMES.items():
        values = [policy[name] for name in own if name in policy and name.startswith(kept)]
        if not values or values[0] is None:
            continue
        if convert is _same:
            found[upstream] = values[0]
        elif convert is _flush:
            found[upstream] = _FLUSH_WORDS[values[0]]
    return found
