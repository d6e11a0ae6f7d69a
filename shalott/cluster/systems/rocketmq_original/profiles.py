"""The profile ``safe``: what RocketMQ's manual recommends against loss, for each replication.

Its chapters on master and slaves recommend synchronous double writes and synchronous flushing;
those on controllers, acknowledgements by the whole SyncStateSet, a least number of replicas in it,
and no unclean elections; with DLedger a majority has each entry whatever is set. The profile
``upstream`` sets nothing: it is what a release does by default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shalott.cluster.systems.rocketmq_original.layout import replication_of
from shalott.cluster.systems.rocketmq_original.parameters import numbers

_FLUSHED = {"flushDiskType": "SYNC_FLUSH"}


def safe_settings(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    replication = replication_of(parameters)
    if replication == "dledger":
        return _FLUSHED
    if replication == "controller":
        return {
            **_FLUSHED,
            "allAckInSyncStateSet": True,
            "inSyncReplicas": 2,
            "minInSyncReplicas": 2,
            "enableElectUncleanMaster": False,
        }
    copies = {} if numbers(str(parameters["version"])) < (5, 0, 0) else {"inSyncReplicas": 2}
    return {**_FLUSHED, "brokerRole": "SYNC_MASTER", **copies}
