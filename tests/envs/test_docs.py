"""The examples of the documentation run as they stand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"


def examples() -> list[Any]:
    found = []
    for name in ("environments.md", "data.md", "wildfire.md"):
        text = (DOCS / name).read_text(encoding="utf-8")
        for i, code in enumerate(re.findall(r"```python\n(.*?)```", text, re.DOTALL)):
            found.append(pytest.param(code, id=f"{name}-{i}"))
    return found


@pytest.mark.parametrize("code", examples())
def test_example(code: str) -> None:
    exec(compile(code, "example", "exec"), {"__name__": "example"})
