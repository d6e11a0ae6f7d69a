"""etcd under test: ``--load shalott_etcd``."""

from shalott_etcd.defragment import FAULT as FAULT
from shalott_etcd.system import SYSTEM as SYSTEM
from shalott_etcd.watches import WORKLOAD as WORKLOAD
