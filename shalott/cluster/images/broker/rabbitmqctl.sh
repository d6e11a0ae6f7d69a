#!/bin/sh
# An operator's command on this node: the verbs of RabbitMQ's own, of shalott.broker.rabbit.ctl.
PYTHONPATH=/opt/shalott exec python3 -m shalott.broker.rabbit.ctl "$@"
