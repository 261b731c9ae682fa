"""The server behind ``operant serve``."""
