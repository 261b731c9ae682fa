"""A whole search as one file."""
