"""RabbitMQ 4 under test: quorum queues, streams and classic queues, by shalott.api alone."""
