from __future__ import annotations

import pytest


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / ".operant"
    folder.mkdir()
    return folder
