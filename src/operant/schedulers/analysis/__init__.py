"""What can be learned from a search: charts of its settings and rewards, and what another assessor would have done."""
