"""Known courses of events in a cluster: what brings each about, and where its steps are found."""
