"""Show where jobs can run; `operant sites check NAME` runs a tiny job there."""

from __future__ import annotations

import argparse
import secrets
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from operant.cli._terminal import print_table
from operant.errors import OperantError, UsageError


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("verb", nargs="?", choices=["check"], help="run a tiny job from end to end")
    parser.add_argument("site", nargs="?", help="its name, '{type: slurm, partition: short}' or a YAML file")
    parser.add_argument(
        "--folder", type=Path, help="with check: a folder that the site's machines see (default: the current one)"
    )
    parser.add_argument("--timeout", type=float, default=300.0, help="with check: seconds (default: 300)")


def run(args: argparse.Namespace) -> int:
    from operant.sites import SITES

    if args.verb == "check":
        if args.site is None:
            raise UsageError("which site? `operant sites` lists them")
        return _check(parse_site(args.site), args.folder or Path.cwd(), args.timeout)
    rows = []
    for name in SITES.names:
        if name == "function":  # a call in this process, which only a search of functions can use
            continue
        why = _why_not(SITES.get(name))
        rows.append((name, "yes" if why is None else "no", why or ""))
    print_table(("SITE", "USABLE HERE", ""), rows, fold=True)
    return 0


def parse_site(text: str) -> str | Mapping[str, Any]:
    """A site as the command line says it: its name, a mapping in YAML, or a file with one."""
    from operant._util.plain_yaml import parse_yaml, read_yaml

    path = Path(text)
    found = read_yaml(path) if path.suffix in (".yaml", ".yml") else parse_yaml(text, f"the site {text!r:.200}")
    if isinstance(found, Mapping) and isinstance(found.get("site"), (Mapping, str)):
        found = found["site"]
    if not isinstance(found, (str, Mapping)):
        raise UsageError(f"a site is a name or a mapping with a `type`, not {text!r:.200}")
    return found


def _why_not(site: Any) -> str | None:
    """Why a site cannot be used here; one that does not say is taken to be usable."""
    missing = getattr(site, "missing", None)
    if missing is None:
        return None
    why = missing()
    return None if why is None else str(why)


def _check(given: str | Mapping[str, Any], place: Path, timeout: float) -> int:
    from operant.schedulers.planning.places import checked_site
    from operant.sites import SITES, Event, Site, Submission, make_token
    from operant.sites.base import SystemClock
    from operant.sites.cluster import ClusterSite

    settings = checked_site(given)
    with tempfile.TemporaryDirectory(prefix=".operant-check-", dir=place) as name:
        folder = Path(name)
        job = folder / "jobs" / "0"
        job.mkdir(parents=True)
        token = make_token("0", 1, secrets.token_hex(8))
        clock = SystemClock()
        site: Site = SITES.build(settings, folder)
        if isinstance(site, ClusterSite):
            site.look()  # who is not there, or does not answer, is told at once
        began = time.monotonic()
        site.start(clock.put)
        try:
            site.submit([Submission(token, "0", 1, ["sh", "-c", "echo ready"], job, job)])
            while time.monotonic() < began + timeout:
                for event in clock.wait(1.0):
                    if not isinstance(event, Event):
                        continue
                    if event.kind in ("ended", "lost"):
                        return _say(settings["type"], event.info, job, time.monotonic() - began)
                    said = (event.info.get(key) for key in ("text", "node", "id", "queue"))
                    print(event.kind, *(one for one in said if one))
            site.cancel([token], "timeout")
            raise OperantError(f"the job has not ended within {timeout:g} s")
        finally:
            site.close()


def _say(name: str, info: Mapping[str, Any], job: Path, seconds: float) -> int:
    output = (job / "stdout").read_text(encoding="utf-8") if (job / "stdout").exists() else ""
    if info.get("code") == 0 and output == "ready\n":
        print(f"{name} works: a job went there and its result came back, in {seconds:.1f} s")
        return 0
    raise OperantError(f"{name} does not work: {info.get('error') or info.get('reason') or info}")
