"""NATS JetStream under test: ``--load shalott_nats``."""

from shalott_nats.system import SYSTEM as SYSTEM
