"""Searches to and from the tools that others keep theirs in."""
