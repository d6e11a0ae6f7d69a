"""Nodes with RocketMQ's services, some beside RocketMQ itself: a package, so that what they share
ends with them."""
