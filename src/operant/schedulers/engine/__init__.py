"""The loop of one search: its state, what it starts, what it watches, and how it is gone on with."""
