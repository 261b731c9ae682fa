"""What others wrote is here byte for byte as they released it, with its licence; and what we wrote keeps our rules."""

from __future__ import annotations

import hashlib
import json
import re
from importlib import resources
from pathlib import Path

import pytest

STATIC = Path(str(resources.files("operant.web") / "static"))
VENDOR = STATIC / "vendor"
MANIFEST = json.loads((VENDOR / "manifest.json").read_text(encoding="utf-8"))["files"]
OWN_FILES = sorted(
    one for one in STATIC.rglob("*.*") if VENDOR not in one.parents and one.suffix in {".js", ".css", ".html"}
)


def test_the_manifest_names_every_vendored_file_and_no_other() -> None:
    found = {one.name for one in VENDOR.iterdir()} - {"manifest.json"}
    assert found == set(MANIFEST)


@pytest.mark.parametrize("name", sorted(MANIFEST))
def test_a_vendored_file_is_the_released_one(name: str) -> None:
    entry = MANIFEST[name]
    assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == entry["sha256"]
    licence = (VENDOR / entry["licence_file"]).read_text(encoding="utf-8")
    assert entry["licence"] == "MIT" and "Permission is hereby granted, free of charge" in licence


def test_the_vendored_version_is_the_one_its_own_head_names() -> None:
    head = (VENDOR / "uPlot.esm.js").read_text(encoding="utf-8")[:400]
    assert f"(v{MANIFEST['uPlot.esm.js']['version']})" in head


# Each of these lets text of a user become markup or code, or asks another host for something.
FORBIDDEN = {
    "markup from text": r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser",
    "code from text": r"\beval\(|new Function\(|setTimeout\(\s*[\"'`]|setInterval\(\s*[\"'`]",
    "another host": r"""["'(]\s*(https?:)?//(?!www\.w3\.org/2000/svg)[a-z]""",
}


@pytest.mark.parametrize("path", OWN_FILES, ids=lambda path: str(path.relative_to(STATIC)))
def test_our_own_files_keep_user_text_as_text_and_ask_no_other_host(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for what, pattern in FORBIDDEN.items():
        found = re.search(pattern, text)
        assert found is None, f"{path.name} has {what}: {text[max(0, found.start() - 40) : found.end() + 40]!r}"


def test_everything_the_page_links_is_there() -> None:
    text = (STATIC / "index.html").read_text(encoding="utf-8")
    linked = re.findall(r'(?:src|href)="/static/([^"]+)"', text)
    assert len(linked) > 10 and [one for one in linked if not (STATIC / one).is_file()] == []


def test_the_page_has_no_inline_script_or_style() -> None:
    text = (STATIC / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=", text)
    assert all("src=" in tag for tag in re.findall(r"<script[^>]*>", text))


@pytest.mark.parametrize(
    "path", [one for one in OWN_FILES if one.suffix == ".js"], ids=lambda path: str(path.relative_to(STATIC))
)
def test_every_import_of_a_module_is_there(path: Path) -> None:
    for target in re.findall(r"""(?:from|import\()\s*["'](\.[^"']+)["']""", path.read_text(encoding="utf-8")):
        assert (path.parent / target).resolve().is_file(), f"{path.name} imports {target}, which is not there"
