"""Algorithms that Operant finds by their entry points."""
