"""RabbitMQ 4 under test, by shalott.api alone: ``--load shalott_rabbitmq``."""

from shalott_rabbitmq.disconnect import FAULT as FAULT
from shalott_rabbitmq.findings import FINDINGS as FINDINGS
from shalott_rabbitmq.system import SYSTEM as SYSTEM
from shalott_rabbitmq.unconfirmed import CHECKER as CHECKER
