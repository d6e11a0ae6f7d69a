"""Redis and Valkey under test, by shalott.api alone: ``--load shalott_redis``."""

from shalott_redis.findings import FINDINGS as FINDINGS
from shalott_redis.system import REDIS as REDIS
from shalott_redis.system import VALKEY as VALKEY
