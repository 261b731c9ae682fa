"""Fixtures for every test of the page: a browser, and a folder with something in it."""

import pytest

pytest.importorskip("starlette", reason="operant[web] is not installed")

from tests.web.browser import browser, page, page_faults, ui
from tests.web.looking import place
from tests.web.made import client, made_once, root

__all__ = ["browser", "client", "made_once", "page", "page_faults", "place", "root", "ui"]
