"""ActiveMQ Artemis under Shalott."""
