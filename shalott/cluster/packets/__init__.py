"""What becomes of single packets between nodes, and how it is made, read and measured: what
containers and hosts over SSH share."""
