"""Attacks that worked on tools like this one, tried on every route: a new route is in the table, so it is tried too."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from starlette.routing import Route
from tests.web.asking import Answer, Client, record_run

from operant.http.security import Gatekeeper
from operant.http.server import application as serve_application
from operant.tracking.format.blobs import store_bytes
from operant.web.ui import run_ui

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
TOKEN = "correct-horse-battery-staple-token"
FOREIGN_HOSTS = ("evil.com", "127.0.0.1.evil.com", "localhost.evil.com", "evil.com:4270", "", "0x7f000001", "[::1")
SECRET = "root-secret-7391"


def paths(client: Client) -> Iterator[str]:
    """Every path of the route table, with something real in place of its parameters."""
    filled = {"name": "made", "job": "3", "id": "search:made"}
    for route in client.inner.routes:
        assert isinstance(route, Route), f"{route} is no plain route: teach this test about it"
        yield re.sub(r"{(\w+)}", lambda found: filled[found[1]], route.path)


def everything(client: Client) -> list[tuple[str, str]]:
    table = [(method, path) for path in paths(client) for method in METHODS]
    assert len(table) > 200
    return table


def refused(answer: Answer) -> bool:
    return answer.status in (401, 403) and b"error" in answer.body


# -- who may ask ------------------------------------------------------------------------------------------------------


def test_without_the_token_nothing_is_answered(root: Path) -> None:
    """CVE-2023-48022, CVE-2026-0545, CVE-2026-2652, CVE-2026-27482: an open API, one open mount, one open method."""
    client = Client(root, TOKEN)
    before = sorted(root.rglob("*"))
    for method, path in everything(client):
        if path == "/healthz":
            continue
        for headers in (
            {},
            {"authorization": "Bearer wrong"},
            {"authorization": TOKEN},
            {"cookie": f"operant={TOKEN}"},
            {"user-agent": "Mozilla/5.0"},
        ):
            answer = client.ask(method, path, {} if method == "POST" else None, headers)
            assert refused(answer), (method, path, headers, answer.status)
    assert client.get("/healthz").json == {"status": "ok"}
    assert sorted(root.rglob("*")) == before


def test_other_host_names_are_turned_away_everywhere(root: Path) -> None:
    """CVE-2025-14279, CVE-2025-62593: DNS rebinding. The names of this machine and addresses are what is let in."""
    for client in (Client(root), Client(root, TOKEN)):
        for method, path in everything(client):
            for host in FOREIGN_HOSTS:
                headers = {"host": host, "authorization": f"Bearer {TOKEN}"}
                answer = client.ask(method, path, {} if method == "POST" else None, headers)
                assert refused(answer), (method, path, host, answer.status)
    for host in ("localhost:4270", "127.0.0.1", "[::1]:4270", "10.0.0.7:4270"):
        assert Client(root).get("/api/searches", host=host).status == 200
    assert Client(root, None, ["proxy.example"]).get("/api/searches", host="proxy.example").status == 200


def test_requests_from_other_sites_are_turned_away_everywhere(root: Path) -> None:
    """CVE-2024-2196, CVE-2024-7760, CVE-2024-24593, CVE-2025-1473, CVE-2026-44211: CSRF, also on loopback."""
    client = Client(root)
    for method, path in everything(client):
        for headers in (
            {"origin": "http://evil.com"},
            {"origin": "null"},
            {"origin": "http://127.0.0.1:9999"},
            {"origin": "http://127.0.0.1:4270.evil.com"},
            {"origin": "file://"},
            {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"},
            {"sec-fetch-site": "same-site", "sec-fetch-mode": "cors"},
            {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "origin": "http://evil.com"},
        ):
            answer = client.ask(method, path, {} if method == "POST" else None, headers)
            assert refused(answer), (method, path, headers, answer.status)
    own = {"origin": "http://127.0.0.1:4270", "sec-fetch-site": "same-origin"}
    assert client.ask("POST", "/api/charts", {"runs": [], "tags": []}, own).status == 200


def test_a_link_from_elsewhere_leads_to_pages_only(root: Path) -> None:
    client = Client(root)
    headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    for path in paths(client):
        answer = client.ask("GET", path, headers=headers)
        assert refused(answer) == (path not in ("/", "/searches", "/searches/made", "/runs", "/run", "/compare",
                                                "/compare/search:made")), path  # fmt: skip
        assert refused(client.ask("POST", path, {}, headers)), path


def test_a_form_of_another_site_cannot_post(client: Client) -> None:
    """What a plain form may send without asking first: none of it is JSON by name."""
    for kind in ("application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain", ""):
        answer = client.ask("POST", "/api/compares", b'{"name": "x"}', {"content-type": kind})
        assert answer.status == 400 and "JSON" in answer.json["error"]
    assert client.get("/api/compares").json == {"compares": []}


def test_websockets_are_refused(root: Path) -> None:
    for headers in ({}, {"origin": "http://evil.com"}):
        assert Client(root, TOKEN).ask("GET", "/api/events", headers=headers, kind="websocket").status >= 4000


def test_asking_never_changes_anything(client: Client, root: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    for path in paths(client):
        if path != "/api/events":
            for method in ("GET", "HEAD"):
                assert client.ask(method, path).status < 500, path
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before


def test_the_token_becomes_a_cookie_and_leaves_the_address(root: Path) -> None:
    client = Client(root, TOKEN)
    answer = client.get(f"/searches/made?tab=jobs&token={TOKEN}")
    assert answer.status == 303 and answer.headers["location"] == "/searches/made?tab=jobs"
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and TOKEN not in cookie
    pair = cookie.partition(";")[0]
    assert client.get("/api/searches", cookie=f"other=1; {pair}").status == 200
    assert client.get("/api/searches", authorization=f"Bearer {TOKEN}").status == 200
    assert refused(client.get("/api/searches", cookie=pair[:-1] + "0"))
    assert refused(client.get(f"/api/searches?token={TOKEN}"))  # only a page exchanges it
    assert refused(client.get("/?token=wrong"))
    assert client.get(f"//evil.com/?token={TOKEN}").headers.get("location", "/").startswith("//") is False
    other = Client(root, TOKEN + "2")
    assert other.get(f"/?token={TOKEN}2").headers["set-cookie"].partition("=")[0] != pair.partition("=")[0]


def test_every_answer_forbids_what_a_page_does_not_need(client: Client) -> None:
    for path in paths(client):
        if path == "/api/events":
            continue
        for answer in (client.get(path), client.get(path, host="evil.com"), client.ask("DELETE", path)):
            policy = answer.headers["content-security-policy"]
            assert "default-src 'self'" in policy or "sandbox" in policy
            assert "unsafe" not in policy and answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["x-frame-options"] == "DENY"
            assert "access-control-allow-origin" not in answer.headers


def test_the_page_has_nothing_inline(client: Client) -> None:
    page = client.get("/").body.decode()
    if client.get("/").status == 404:
        pytest.skip("the page's own files are not here")
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\son\w+\s*=|\sstyle\s*=|javascript:", page, re.I)
    assert not re.search(r"(?:src|href)=[\"']?(?:https?:)?//", page)


def test_serve_is_behind_the_same_gate(root: Path) -> None:
    app: Any = serve_application(root, TOKEN, {"127.0.0.1"})
    assert isinstance(app, Gatekeeper)
    client = Client(root)
    client.app = app
    for path in ("/api/ingest/state", "/api/ingest/segment", "/api/ingest/blob", "/api/ingest/message"):
        for method in METHODS:
            assert refused(client.ask(method, path))
            foreign = {"authorization": f"Bearer {TOKEN}", "origin": "http://evil.com"}
            assert refused(client.ask(method, path, headers=foreign))
    assert client.get("/health").status == 200


# -- paths ------------------------------------------------------------------------------------------------------------

TRAVERSALS = (
    "../../../secret",
    "..%2f..%2f..%2fsecret",
    "%2e%2e/%2e%2e/secret",
    "%252e%252e%252fsecret",
    "..\\..\\secret",
    "..;/..;/secret",
    "made;/../../secret",
    "/etc/passwd",
    "//etc/passwd",
    "C:/windows/win.ini",
    "file:///etc/passwd",
    "http://evil.com/x",
    "made/../../../secret",
    "made#/../secret",
    "made?/../secret",
    "made\x00",
    "*",
    ".",
    "..",
    "",
    "made-evil",
    "~root",
    "a" * 5000,
)


def test_no_path_of_a_client_leads_out(root: Path) -> None:
    """CVE-2023-1177 and its many followers: every parameter of every route with every spelling."""
    outside = root.parent / "secret"
    outside.mkdir()
    (outside / "journal.log").write_text(SECRET)
    (root.parent / "secret.json").write_text(SECRET)
    (root / "searches" / "made-evil-link").symlink_to(outside)
    client = Client(root)
    from urllib.parse import unquote

    for route in client.inner.routes:
        assert isinstance(route, Route)
        names = re.findall(r"{(\w+)}", route.path)
        for text in TRAVERSALS:
            bad = {"id": text, "name": text, "stream": text, "end": text, "x": text, "y": text, "tag": text}
            for spelled in {text, unquote(text)}:
                path = route.path
                for name in names:
                    path = path.replace(f"{{{name}}}", spelled)
                if "/api/events" in path:
                    continue
                query = "&".join(f"{key}={_quoted(value)}" for key, value in bad.items())
                for method in route.methods or ():
                    body = {"id": text, "runs": [text], "searches": [text], "name": text, "text": "t", "add": ["t"]}
                    answer = client.ask(method, path, body if method == "POST" else None, query=query)
                    assert answer.status < 500, (method, path, answer.status)
                    assert SECRET.encode() not in answer.body and b"root:x:0" not in answer.body
    assert [path.name for path in outside.iterdir()] == ["journal.log"]
    assert not list(root.parent.rglob("inbox"))
    assert {path.parent for path in root.rglob("*.json")} <= {root / "compares", root / "searches" / "made"}


@pytest.mark.parametrize(
    "path",
    [
        "/app.js",
        "/static/vendor/../../pyproject.toml",
        "/static//etc/passwd",
        "/static/%2e%2e/security.py",
        "/static/../security.py",
        "/..%2fsecurity.py",
        "/static/lib/../../server.py",
        "//etc/passwd",
        "/static/vendor/uPlot.esm.js/../../../security.py",
    ],
)
def test_static_files_come_from_a_fixed_table(client: Client, path: str) -> None:
    """CVE-2021-43775, CVE-2023-6020, CVE-2026-28414: nothing is opened by a client's path."""
    assert client.get(path).status == 404


def test_links_are_not_followed(root: Path) -> None:
    """Links inside the store, as in MLflow #18964."""
    outside = root.parent / "elsewhere"
    record_run(outside, "elsewhere", {"acc": [1.0]})
    (root / "runs" / "linked").symlink_to(outside)
    (root / "searches" / "made" / "jobs" / "link").mkdir()
    (root / "searches" / "made" / "jobs" / "link" / "run").symlink_to(outside)
    (root / "searches" / "other").symlink_to(root / "searches" / "made")
    stdout = root / "searches" / "made" / "jobs" / "3" / "stdout"
    stdout.unlink()
    stdout.symlink_to("/etc/passwd")
    client = Client(root)
    for run_id in ("linked", "made/link"):
        assert client.get(f"/api/run?id={run_id}").status == 404
        assert client.post("/api/run/note", {"id": run_id, "text": "x"}).status == 404
    assert client.get("/api/run/console?id=made/3").status == 404
    assert client.get("/api/searches/other").status == 404
    assert not (outside / "inbox").exists()


def test_only_listed_blobs_are_given_out(root: Path) -> None:
    """A file of the right name that the run does not list, a link under a listed name, and another run's file."""
    run = root / "runs" / "media"
    recorder = record_run(run, "media", {"acc": [1.0]}, end="")
    listed = {}
    for name, data in {
        "a.svg": b"<svg onload=alert(1)>",
        "b.html": b"<script>",
        "c.png": b"png",
        "d.txt": b"t",
    }.items():
        listed[name] = recorder.store(data, name[1:])
        recorder.record("file", name=name, blob=listed[name])
    strange = recorder.store(b"strange", ".txt")
    recorder.record("file", name='../x/a" b\u2026\r\n ine.txt', blob=strange)
    link = recorder.store(b"link me", ".txt")
    recorder.record("file", name="link", blob=link)
    recorder.record("file", name="odd", blob={"name": "../../../etc/passwd", "size": 1})
    recorder.end("FINISHED")
    hidden = store_bytes(run, b"unlisted", ".txt")
    (run / "blobs" / link["name"]).unlink()
    (run / "blobs" / link["name"]).symlink_to("/etc/passwd")
    client = Client(root)

    def get(name: str, run_id: str = "media") -> Answer:
        return client.get(f"/api/run/blob?id={run_id}&name={name}")

    for name in ("a.svg", "b.html"):
        answer = get(listed[name]["name"])
        assert answer.headers["content-disposition"].startswith(f'attachment; filename="{name}";')
        assert answer.headers["content-type"] == "application/octet-stream"
    for name, kind in {"c.png": "image/png", "d.txt": "text/plain; charset=utf-8"}.items():
        answer = get(listed[name]["name"])
        assert answer.status == 200 and answer.headers["content-type"] == kind
        assert "sandbox" in answer.headers["content-security-policy"]
        assert f'filename="{name}"' in answer.headers["content-disposition"]
    odd = get(strange["name"])
    assert odd.status == 200 and odd.headers["content-disposition"] == (
        "inline; filename=\"a__b__ine.txt\"; filename*=UTF-8''a%22%20b%E2%80%A6%20ine.txt"
    )
    assert get(hidden["name"]).status == get(link["name"]).status == 404
    assert get(listed["c.png"]["name"], "plain-1").status == get("../../../etc/passwd").status == 404


# -- too much ---------------------------------------------------------------------------------------------------------


def test_numbers_of_any_length_are_turned_away(root: Path) -> None:
    client = Client(root)
    for value in ("9" * 5000, "0" * 5000 + "1", "0" * 18 + "1" + "9" * 50, "-1", "1e3", "%C2%B2"):
        assert client.ask("GET", f"/api/runs?offset={value}").status == 400, value[:30]


def test_bodies_are_limited_on_every_post(root: Path) -> None:
    client = Client(root)
    for route in client.inner.routes:
        assert isinstance(route, Route)
        if "POST" not in (route.methods or ()):
            continue
        path = re.sub(r"{\w+}", "made", route.path)
        assert client.ask("POST", path, b"[" + b" " * (1 << 20)).status == 413, path
        lying = {"content-length": str(1 << 40)}
        assert client.ask("POST", path, b"{}", lying).status == 413, path
        assert client.ask("POST", path, b"[" * 100_000).status == 400, path
        assert client.ask("POST", path, b'"text"').status == 400, path


def test_requests_for_too_much_are_refused(client: Client) -> None:
    """CVE-2025-0453: one request that asks for everything many times over."""
    ids, tags = [f"r{number}" for number in range(1001)], [f"t{number}" for number in range(500)]
    assert client.post("/api/charts", {"runs": ids, "tags": ["a"]}).status == 413
    assert client.post("/api/charts", {"runs": ids[:1000], "tags": tags, "buckets": 10_000}).status == 413
    assert client.get(f"/api/events?runs={','.join(ids)}").status == 413
    assert client.get("/api/events?runs=../x").status == client.get("/api/events").status == 400
    assert client.get("/api/runs?limit=99999999999999999999999").status == 400


PAYLOADS = ("<img src=x onerror=alert(1)>", "javascript:alert(1)", "</script><script>alert(1)</script>", "\x1b[2J\x00")


def test_hostile_names_stay_data(root: Path) -> None:
    """CVE-2024-8863, CVE-2025-51464, CVE-2023-6568: what a run is called reaches the page as JSON and nothing else."""
    recorder = record_run(root / "runs" / "xss", "xss", {text: [1.0] for text in PAYLOADS}, tags=PAYLOADS, end="")
    recorder.record("hparams", params={text: text for text in PAYLOADS}, metrics=[])
    recorder.record("text", tag=PAYLOADS[0], step=0, text=PAYLOADS[2])
    recorder.end("FINISHED")
    client = Client(root)
    client.post("/api/run/note", {"id": "xss", "text": PAYLOADS[0]})
    for path in ("/api/run?id=xss", "/api/runs"):
        answer = client.get(path)
        assert answer.headers["content-type"] == "application/json"
        assert PAYLOADS[0] in str(answer.json)
    for bad in PAYLOADS:
        answer = client.get(f"/api/searches/{bad}")
        assert answer.status == 404 and answer.headers["content-type"] == "application/json"
    assert b"\x1b" not in client.get("/api/run?id=xss").body


def test_off_loopback_a_token_is_made(monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    from operant.web import ui

    told: list[tuple[str, str | None]] = []

    class Done(Exception):
        pass

    def ready(address: str, token: str | None) -> None:
        told.append((address, token))
        raise Done

    for host in ("127.0.0.1", "0.0.0.0"):
        with pytest.raises(Done):
            ui.run_ui(root, host, 0, ready)
    assert told[0][1] is None and told[0][0].startswith("http://127.0.0.1:")
    assert len(told[1][1] or "") >= 32 and told[1][0].startswith(f"http://{socket.gethostname()}:")


def _quoted(text: str) -> str:
    from urllib.parse import quote

    return quote(text, safe="")


def test_a_login_is_good_once_and_its_word_is_in_no_command_line(monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    opened: list[str] = []
    pages: list[str] = []

    def serve(app: Any, *_: Any, before_end: Callable[[], None], **__: Any) -> None:
        (path,) = [Path(unquote(urlsplit(one).path)) for one in opened]
        assert path.stat().st_mode & 0o077 == 0
        pages.append(path.read_text())
        before_end()  # as SIGTERM does
        assert not path.exists()

    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setattr("operant.web.ui.run_server", serve)
    told: list[tuple[str, str | None]] = []
    run_ui(root, "0.0.0.0", 0, lambda *given: told.append(given), open_page=True)
    ((address, token),) = told
    word = pages[0].partition("token=")[2].partition('"')[0]
    assert f"{address}/?token=" in pages[0] and token and word and token != word
    assert opened[0].startswith("file:") and token not in opened[0] and word not in opened[0]
    assert not Path(unquote(urlsplit(opened[0]).path)).exists()

    client = Client(root, "a token of the server's")
    once = client.app.make_login()
    elsewhere = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    first = client.get(f"/runs?token={once}&x=%22%3E", **elsewhere)
    assert first.status == 200 and 'content="0;url=/runs?x=%22%3E"' in first.body.decode()
    cookie = first.headers["set-cookie"].partition(";")[0]
    assert client.get("/runs", cookie=cookie).status == 200
    assert client.get(f"/runs?token={once}", **elsewhere).status == client.get(f"/runs?token={once}").status == 401
