"""Show searches, or one of them with its jobs."""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

from operant._util.units import duration, printable
from operant.cli._terminal import print_table
from operant.errors import UsageError
from operant.tracking.places import find_root


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-t", "--task", metavar="NAME", help="the search to show (default: a list of all)")
    parser.add_argument("--jobs", metavar="A,B", help="only these jobs")
    parser.add_argument("--out", type=Path, metavar="FILE.yaml", help="write it to a YAML file")
    parser.add_argument("--scalar", action="store_true", help="with the last value of each scalar that jobs recorded")
    parser.add_argument("--tree", action="store_true", help="the regions that LamctsSearcher has learnt")
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(args: argparse.Namespace) -> int:
    from operant._util.garbage import no_garbage_collection

    with no_garbage_collection():
        return _show(args)


def _show(args: argparse.Namespace) -> int:
    from operant.schedulers.views.overview import describe, find_search, job_scalars

    root = find_root()
    if args.task is None:
        if args.jobs or args.scalar or args.tree:
            raise UsageError("--jobs, --scalar and --tree need --task: the search that is meant")
        return _show_all(root, args)
    folder = find_search(root, args.task)
    if args.tree:
        from operant.schedulers.views.region_tree import region_tree

        print(region_tree(folder))
        return 0
    only = [one.strip() for one in args.jobs.split(",") if one.strip()] if args.jobs else None
    found = describe(folder, only)
    _add_urls(root, found)
    if args.scalar:
        for job in found["jobs"]:
            job["scalars"] = job_scalars(folder, job["id"])
    if args.out is not None:
        _write_yaml(args.out, found)
    if args.json:
        _print_json(found, indent=None if len(found["jobs"]) > 100 else 2)
    elif args.out is None:
        _print_search(found, folder)
    return 0


def _add_urls(root: Path, found: dict[str, Any]) -> None:
    """Where the page shows the search's runs side by side, and each job."""
    from operant.web.address import address_of, compare_url, job_url

    address = address_of(root)
    found["url"] = compare_url(address, found["task"], (found["compare"] or {}).get("id"))
    jobs = job_url(address, f"{found['task']}/")
    for job in found["jobs"]:
        job["url"] = jobs + job["id"]  # which nothing of has to be quoted


def _show_all(root: Path, args: argparse.Namespace) -> int:
    from operant.schedulers.views.overview import describe, list_searches
    from operant.web.address import address_of, compare_url

    found = [describe(folder) for folder in list_searches(root)]
    for one in found:
        _add_urls(root, one)
    short = [{**{key: value for key, value in one.items() if key != "jobs"}, "jobs": len(one["jobs"])} for one in found]
    if args.out is not None:
        _write_yaml(args.out, short)
    if args.json:
        _print_json(short, indent=2)
    elif not short:
        print(f"There are no searches in {root}; `search-run --task NAME FILE` starts one.")
    elif args.out is None:
        rows = [[one["task"], one["status"], str(one["jobs"]), _counts(one), _best(one), one["url"]] for one in short]
        if print_table(["task", "status", "jobs", "of them", "best", "page"], rows, whole="page", spare="page"):
            print(f"a search's page is {compare_url(address_of(root), 'TASK', None)}")
        for one in short:
            if one["damage"]:
                print(f"{one['task']}: {one['damage']}")
    return 0


def _print_search(found: dict[str, Any], folder: Path) -> None:
    print(f"{found['task']}: {found['status']}, {len(found['jobs'])} jobs ({_counts(found)})")
    if found["damage"]:
        print(printable(found["damage"]))
    if found["best"] is not None:
        settings = ", ".join(f"{key}={value}" for key, value in found["best"]["arg_dict"].items())
        print(printable(f"best {found['reward_attribute']}: {_best(found)} with {settings}"))
    if found["compare"]:
        print(printable(f"group {found['compare'].get('name')!r}, id {found['compare'].get('id')}"))
    print(f"page {found['url']} (`operant ui` serves it)")
    for check in found["final_check"] or ():
        print(
            f"final check of proposal {check['number']}: {check['mean']:.6g} "
            f"(95 % interval {check['low']:.6g} to {check['high']:.6g}, {check['runs']} seeds)"
        )
    jobs = found["jobs"]
    if not jobs:
        return
    scalars = sorted({tag for job in jobs for tag in job.get("scalars", ())})
    rows = []
    placed = any("site_id" in job for job in jobs)
    templates: dict[Any, str] = {}
    for job in jobs:
        runs = job["status"] == "RUNNING" or job["ended"]
        took = duration((job["ended"] or time.time()) - job["started"]) if runs and job["started"] else ""
        settings = _settings(job["arg_dict"], templates)
        shown = [_number(job.get("scalars", {}).get(tag)) for tag in scalars]
        told = job.get("error") or job.get("reason") or ""
        where = [duration(job["waited"]) if "waited" in job else "", _where(job)] if placed else []
        rows.append(
            [job["id"], job["status"], _number(job["reward"]), *where, took, *shown, settings, told, job["url"]]
        )
    headings = ["job", "status", "reward", *(["waited", "where"] if placed else []), "took", *scalars]
    headings += ["settings", "", "page"]
    if print_table(headings, rows, whole="page", spare="page"):
        print(f"a job's page is {jobs[0]['url'].removesuffix(jobs[0]['id'])}JOB")
    failed = [job["id"] for job in jobs if job.get("error") and _has_bytes(folder / "jobs" / job["id"] / "stderr")]
    if failed:
        place = folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
        print(f"what a job printed is in {place / 'jobs' / (failed[0] if len(failed) == 1 else 'JOB') / 'stderr'}")


def _has_bytes(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _where(job: dict[str, Any]) -> str:
    """The node, what the site calls the job, and why it waits."""
    parts = (job.get("node"), job.get("site_id"), job.get("queue"))
    return printable(" ".join(one for one in parts if one))


def _settings(config: dict[str, Any], templates: dict[Any, str]) -> str:
    """`lr=0.1 name=b`: most jobs have the same keys and kinds of values, and so share one template."""
    values = tuple(config.values())
    shape = (*config, *map(type, values))
    template = templates.get(shape)
    if template is None:
        parts = [f"{key.replace('%', '%%')}={'%.6g' if type(one) is float else '%s'}" for key, one in config.items()]
        template = templates[shape] = " ".join(parts)
    return template % values


def _counts(found: dict[str, Any]) -> str:
    return ", ".join(f"{count} {status.lower()}" for status, count in sorted(found["counts"].items()))


def _best(found: dict[str, Any]) -> str:
    return "" if found["best"] is None else _number(found["best"]["reward"])


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _print_json(found: Any, indent: int | None) -> None:
    try:
        text = json.dumps(found, indent=indent, allow_nan=False)
    except ValueError:
        text = json.dumps(_json_ready(found), indent=indent)
    print(text)


def _json_ready(value: Any) -> Any:
    """JSON has no NaN and no infinity; other programs would not read the file."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    if isinstance(value, dict):
        return {key: _json_ready(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json_ready(one) for one in value]
    return value


def _write_yaml(path: Path, content: Any) -> None:
    if path.suffix not in (".yaml", ".yml"):
        raise UsageError(f"--out writes YAML: give a file that ends in .yaml, not {str(path)!r}")
    from operant._util.plain_yaml import yaml_text

    path.write_text(yaml_text(content), encoding="utf-8")
    print(f"Wrote {path}")
