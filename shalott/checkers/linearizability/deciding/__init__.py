"""How a check of linearizability goes from a history to a verdict: who is asked, and when."""
