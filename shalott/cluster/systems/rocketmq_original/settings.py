"""A plan's settings by upstream's own names, checked against what the release has.

``flushDiskType=SYNC_FLUSH`` is for every service that has such a setting; with a service's name and
a dot before it, it is for that one alone. Which settings a release has, and what
they are by default, was printed by its own services (scripts/rocketmq-settings) and lies in
cluster/systems/rocketmq_original/releases. What a node is (its name, its addresses,
its peers) is not a setting.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec

from shalott.cluster.systems.rocketmq_original.parameters import JRAFT, replication_of
from shalott.core.errors import UsageError
from shalott.core.plan import SystemPlan

RELEASES = Path(__file__).parent / "releases"
SERVICES = ("broker", "nameserver", "controller")
# The harness's own: who a node is, where it listens and keeps its files, and whom it knows.
IDENTITY = (
    *("brokerClusterName", "brokerName", "brokerId", "brokerIP1", "brokerIP2", "listenPort"),
    *("haListenPort", "namesrvAddr", "rocketmqHome", "storePathRootDir", "storePathCommitLog"),
    *("kvConfigPath", "configStorePath", "bindAddress", "brokerConfigPath", "controllerAddr"),
    *("enableControllerMode", "enableControllerInNamesrv", "enableDLegerCommitLog"),
    *("dLegerGroup", "dLegerPeers", "dLegerSelfId", "controllerDLegerGroup"),
    *("controllerDLegerPeers", "controllerDLegerSelfId", "controllerStorePath"),
    *("haMasterAddress", "jraftConfig"),
    *("jRaftGroupId", "jRaftServerId", "jRaftInitConf", "jRaftControllerRPCAddr"),
)
# Of what upstream keeps as a text although it is one of a few.
CHOICES: Mapping[str, tuple[str, ...]] = {
    "brokerRole": ("ASYNC_MASTER", "SYNC_MASTER"),
    "flushDiskType": ("ASYNC_FLUSH", "SYNC_FLUSH"),
    "controllerType": ("DLedger", JRAFT),
}
# common/JraftConfig.java, which no release prints.
JRAFT_SETTINGS: Mapping[str, str] = {
    "jRaftElectionTimeoutMs": "1000",
    "jRaftScanWaitTimeoutMs": "1000",
    "jRaftSnapshotIntervalSecs": "3600",
}


@cache
def settings_of_release(release: str) -> Mapping[str, Mapping[str, str]]:
    """By service, every setting with its default, as the release printed them."""
    found: dict[str, dict[str, str]] = msgspec.json.decode(
        (RELEASES / f"{release}.json").read_bytes()
    )
    if "controllerType" in found.get("controller", {}):
        found["controller"] |= JRAFT_SETTINGS
    return found


def settings_of_service(plan: SystemPlan, service: str) -> dict[str, object]:
    """Of the plan's settings those that this service has."""
    known = settings_of_release(str(plan.parameters["version"])).get(service, {})
    plain = {name: value for name, value in plan.policy.items() if name in known}
    own = {
        name.removeprefix(f"{service}."): value
        for name, value in plan.policy.items()
        if name.startswith(f"{service}.")
    }
    return {**plain, **own}


def check_settings(plan: SystemPlan) -> None:
    """Raises UsageError, in one sentence, for a name that is none or a value that can't be."""
    release = str(plan.parameters["version"])
    by_service = settings_of_release(release)
    for full_name, value in plan.policy.items():
        service, dot, name = full_name.rpartition(".")
        having = [s for s in SERVICES if name in by_service.get(s, {}) and service in ("", s)]
        if name in IDENTITY:
            raise UsageError(f"--policy {full_name}: that is the harness's own to set")
        if not having or (dot and service not in SERVICES):
            raise UsageError(_unknown(full_name, name, release, by_service))
        _check_value(full_name, name, value, by_service[having[0]][name])
    if "brokerRole" in plan.policy and replication_of(plan.parameters) != "master-slave":
        raise UsageError(
            "--policy brokerRole: here brokers get their role by election; leave it out, or use"
            " --replication master-slave"
        )


def _unknown(
    full_name: str, name: str, release: str, by_service: Mapping[str, Mapping[str, str]]
) -> str:
    every = dict.fromkeys(each for names in by_service.values() for each in names)
    known = sorted(each for each in every if each not in IDENTITY)
    near = difflib.get_close_matches(name, known, n=2, cutoff=0.5)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return f"--policy {full_name}: RocketMQ {release} has no such setting{hint}"


def _check_value(full_name: str, name: str, value: object, usual: str) -> None:
    """By what kind of thing its default is. Raises UsageError."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if name in CHOICES and text not in CHOICES[name]:
        raise UsageError(f"--policy {full_name}={text}: it is {' or '.join(CHOICES[name])}")
    if usual in ("true", "false") and text not in ("true", "false"):
        raise UsageError(f"--policy {full_name}={text}: it is true or false")
    if _is_number(usual) and not _is_number(text):
        raise UsageError(f"--policy {full_name}={text}: it is a number, by default {usual}")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
