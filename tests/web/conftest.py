"""The browser's fixtures, for every test of the page."""

from tests.web.browser import browser, page, page_faults, ui

__all__ = ["browser", "page", "page_faults", "ui"]
