"""Contract tests that every plug-in of a kind must pass; subclass them for your own (needs pytest)."""

from operant.testing.assessors import AssessorContract
from operant.testing.searchers import SearcherContract

__all__ = ["AssessorContract", "SearcherContract"]
