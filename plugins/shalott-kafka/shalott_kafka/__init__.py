"""Apache Kafka under Shalott."""
