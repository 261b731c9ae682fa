"""Runs across the network: the same blocks, sent to a server and stored there once."""
