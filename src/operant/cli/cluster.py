"""Ray on Kubernetes: describe, apply, forward, submit, clean up.

operant cluster init                          write cluster.yaml, to be changed
operant cluster render                        print the manifests; `| kubectl apply -f -` takes them
operant cluster apply                         make it so: shows the difference first, waits until all is ready
operant cluster status                        the operator, pods, and why they wait
operant cluster scale workers=4               more or fewer pods of a group
operant cluster forward                       dashboards on this machine: Ray, Operant, Prometheus, Grafana, Aim
operant cluster submit -- python train.py     run a job there with the files of this folder, and follow it
operant cluster jobs | logs [JOB] | stop [JOB]
operant cluster delete                        leave nothing but volumes

A cluster is a file (cluster.yaml by default), or a name: NAME.yaml, conf/cluster/NAME.yaml, or one applied from here.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from operant.cli._terminal import print_table
from operant.errors import OperantError, UsageError

if TYPE_CHECKING:
    from operant.cluster.jobs import JobRequest, RayCluster
    from operant.cluster.spec import ClusterSpec


def configure(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")

    def verb(name: str, text: str, *, named: bool = True) -> argparse.ArgumentParser:
        made = verbs.add_parser(name, help=text, description=text)
        if named:
            made.add_argument("cluster", nargs="?", help="file or name (default: cluster.yaml)")
        else:
            made.add_argument("-c", "--cluster", help="file or name (default: cluster.yaml)")
        return made

    init = verbs.add_parser("init", help="write a cluster.yaml to be changed")
    init.add_argument("file", nargs="?", type=Path, default=Path("cluster.yaml"))
    init.add_argument("--operator", choices=("kuberay", "none"), default="kuberay", help="none: no operator is needed")
    init.add_argument("--image", default="registry.example/lab-ray:1", help="what pods run")
    verb("render", "print the manifests")
    apply = verb("apply", "make the cluster what its file says")
    apply.add_argument("--dry-run", action="store_true", help="show the difference and do nothing")
    apply.add_argument("--no-wait", action="store_true", help="do not wait until all pods are ready")
    apply.add_argument("--timeout", type=float, default=900.0, help="seconds to wait (default: 900)")
    verb("status", "the operator, the pods, and why they wait")
    scale = verb("scale", "more or fewer pods of a group of workers", named=False)
    scale.add_argument("groups", nargs="+", metavar="GROUP=N")
    delete = verb("delete", "delete all objects of the cluster; volumes stay")
    delete.add_argument("-y", "--yes", action="store_true", help="do not ask")
    delete.add_argument("--timeout", type=float, default=300.0, help="seconds to wait (default: 300)")
    forward = verb("forward", "dashboards of the cluster on this machine")
    forward.add_argument("--service", action="append", default=[], metavar="NAME:PORT", help="a Service or a pod, too")
    forward.add_argument("--only", action="store_true", help="with --service: nothing else")
    _submit_words(verb("submit", "run a job on the cluster, and follow it", named=False))
    for name, text in (("jobs", "list jobs"), ("logs", "follow a job"), ("stop", "stop a job")):
        made = verb(name, text, named=False)
        made.add_argument("--address", help="of any Ray head instead: http://head:8265")
        if name != "jobs":
            made.add_argument("job", nargs="?", default="last", help="its id (default: the youngest)")


def _submit_words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--address", help="of any Ray head instead: http://head:8265; Ray finds its token itself")
    parser.add_argument("--working-dir", default=".", help="folder or address (https://….zip) to run in; '' for none")
    parser.add_argument("--exclude", action="append", default=[], metavar="PATTERN", help="files that stay here")
    parser.add_argument("--runtime-env", type=Path, metavar="FILE.yaml", help="as Ray takes it: pip, env_vars, …")
    parser.add_argument("--env", action="append", default=[], metavar="NAME[=VALUE]", help="a variable of the job")
    parser.add_argument("--cpus", type=float, help="what Ray sets aside for the program itself")
    parser.add_argument("--gpus", type=float)
    parser.add_argument("--memory", help="such as 4GB")
    parser.add_argument("--name", help="id of the job (default: a fresh one)")
    parser.add_argument("--python", help="the interpreter in the image (default: the cluster's, python3)")
    parser.add_argument("--runs", metavar="FOLDER", help="a shared volume for what is recorded; it does not come home")
    parser.add_argument("--no-fetch", action="store_true", help="what is recorded stays where the job says")
    parser.add_argument("--no-wait", action="store_true", help="do not follow it")
    parser.add_argument("--as-rayjob", action="store_true", help="print a RayJob for KubeRay instead of running it")
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="-- COMMAND")


def run(args: argparse.Namespace) -> int:
    return {
        "init": _init, "render": _render, "apply": _apply, "status": _status, "scale": _scale, "delete": _delete,
        "forward": _forward, "submit": _submit, "jobs": _jobs, "logs": _logs, "stop": _stop,
    }[args.verb](args)  # fmt: skip


def _spec(args: argparse.Namespace) -> ClusterSpec:
    from operant.cluster import load_cluster

    return load_cluster(args.cluster)


def _init(args: argparse.Namespace) -> int:
    from operant.cluster.starting import STARTING

    if args.file.exists():
        raise UsageError(f"{args.file} exists already; move it away first")
    text = STARTING.format(operator=args.operator, image=args.image, name=args.file.stem.lower().replace("_", "-"))
    args.file.write_text(text, encoding="utf-8")
    print(f"wrote {args.file}\n  operant cluster render {args.file}\n  operant cluster apply {args.file}")
    return 0


def _render(args: argparse.Namespace) -> int:
    import secrets

    from operant._util.plain_yaml import yaml_text
    from operant.cluster import render

    spec = _spec(args)
    print("---\n".join(yaml_text(one) for one in render(spec, secrets.token_urlsafe(32))), end="")
    if spec.operator == "none":
        print(
            "operant: the Secret has a new token; `operant cluster apply` keeps the one that is there", file=sys.stderr
        )
    return 0


def _apply(args: argparse.Namespace) -> int:
    from operant.cluster.applying import apply_changes, connect, plan_changes
    from operant.cluster.state import operator_state, wait_ready

    spec = _spec(args)
    cluster = connect(spec)
    changes = plan_changes(spec, cluster)
    for change in changes:
        print(change.diff)
    counts = {word: sum(one.verb == word for one in changes) for word in ("create", "change", "remove")}
    told = ", ".join(f"{count} to {word}" for word, count in counts.items() if count) or "nothing to change"
    print(f"{spec.name} in {cluster.namespace}: {told}")
    if args.dry_run:
        return 0
    apply_changes(spec, cluster, changes)
    if spec.operator == "kuberay":
        runs, words = operator_state(cluster)
        if not runs:
            print(f"operant: {words}; without it nothing will start", file=sys.stderr)
    if args.no_wait:
        return 0
    state = wait_ready(spec, cluster, args.timeout, lambda line: print(f"  {line}", flush=True))
    print(f"{spec.name} is ready: {len(state.pods)} pods\n  operant cluster forward {args.cluster or ''}".rstrip())
    return 0


def _status(args: argparse.Namespace) -> int:
    from operant.cluster.applying import connect
    from operant.cluster.state import look, operator_state

    spec = _spec(args)
    cluster = connect(spec)
    state = look(spec, cluster)
    if spec.operator == "kuberay":
        runs, words = operator_state(cluster)
        print(f"KubeRay's operator {'runs' if runs else 'does not run'}: {words}")
    if not state.there:
        print(f"{spec.name} is not there, in {cluster.namespace}; `operant cluster apply` makes it")
        return 1
    rows = [(one.name, one.group, one.state, one.node, str(one.restarts), one.words) for one in state.pods]
    print_table(("POD", "GROUP", "STATE", "NODE", "RESTARTS", ""), rows, fold=True)
    for line in state.trouble:
        print(line)
    wanted = 1 + sum(group.replicas for group in spec.workers)
    ready = sum(state.ready.values())
    print(f"{ready} of {wanted} pods are ready, in {cluster.namespace}")
    return 0 if ready >= wanted else 1


def _scale(args: argparse.Namespace) -> int:
    from operant.cluster.applying import connect, scale

    spec = _spec(args)
    wanted = {}
    for one in args.groups:
        name, equals, count = one.partition("=")
        if not equals or not count.isdigit():
            raise UsageError(f"say GROUP=N, such as workers=4, not {one!r}")
        wanted[name] = int(count)
    scale(spec, connect(spec), wanted)
    print(f"{spec.name}: {', '.join(f'{name} has {count} pods' for name, count in wanted.items())} from now on")
    return 0


def _delete(args: argparse.Namespace) -> int:
    from operant.cluster.applying import connect, delete_cluster, wait_until_gone

    spec = _spec(args)
    cluster = connect(spec)
    if not args.yes and sys.stdin.isatty():
        answer = input(f"Delete the cluster {spec.name} in {cluster.namespace}, with all jobs that run on it? [y/N] ")
        if answer.strip().lower() not in ("y", "yes"):
            return 1
    for name in delete_cluster(spec, cluster):
        print(f"deleted {name}")
    wait_until_gone(spec, cluster, args.timeout)
    print(f"nothing of {spec.name} is left in {cluster.namespace}; claims of volumes are not touched")
    return 0


def _forward(args: argparse.Namespace) -> int:
    import contextlib
    import threading

    from operant.cluster.applying import connect
    from operant.cluster.forwarding import Listener, cluster_targets, service_target, watch_health

    if args.only and not args.service:
        raise UsageError("--only is for --service NAME:PORT")
    spec = _spec(args)
    cluster = connect(spec)
    targets = [] if args.only else cluster_targets(spec)
    targets += [service_target(cluster, one) for one in args.service]
    with contextlib.ExitStack() as stack:
        # Where pods have the network of their node, and that is this machine, a port of theirs is none of ours.
        wanted = 0 if spec.host_network else None
        listeners = [stack.enter_context(Listener(cluster, one, wanted)) for one in targets]
        found: dict[str, tuple[bool, str]] = {}

        def show() -> None:
            rows = []
            for one in listeners:
                good, words = found[one.target.title]
                rows.append((one.target.title, one.address, "up" if good else "down", words))
            print_table(("WHAT", "ADDRESS", "", ""), rows, whole="ADDRESS", fold=True)
            print("ctrl-C ends it", flush=True)

        try:
            watch_health(listeners, found, show, threading.Event())
        except KeyboardInterrupt:  # how it is meant to be ended
            pass
    return 0


def _submit(args: argparse.Namespace) -> int:
    from operant._util.plain_yaml import read_yaml
    from operant._util.units import parse_bytes
    from operant.cluster.jobs import JobRequest, environment

    words = args.words[1:] if args.words[:1] == ["--"] else args.words
    if not words:
        raise UsageError("what is to be run? operant cluster submit -- python train.py")
    runtime_env: Any = read_yaml(args.runtime_env) if args.runtime_env else {}
    if not isinstance(runtime_env, dict):
        raise UsageError(f"{args.runtime_env} is no mapping of what Ray takes as runtime_env")
    env = environment(args.env)
    if args.runs:
        env["OPERANT_DIR"] = args.runs
    remote = "://" in args.working_dir
    if remote:
        runtime_env["working_dir"] = args.working_dir
    spec = None if args.address else _spec(args)
    request = JobRequest(
        words=words,
        folder=None if remote or not args.working_dir else Path(args.working_dir),
        excludes=args.exclude,
        runtime_env=runtime_env,
        env=env,
        cpus=args.cpus,
        gpus=args.gpus,
        memory=None if args.memory is None else parse_bytes(args.memory, ("memory",)),
        name=args.name,
        python=args.python or (spec.python if spec else "python3"),
        fetch=not (args.no_fetch or args.runs or remote),
        awaited=not args.no_wait,
    )
    if args.as_rayjob:
        return _as_rayjob(args, request)
    return submit_and_follow(spec, args.address, request, wait=not args.no_wait)


def _as_rayjob(args: argparse.Namespace, request: JobRequest) -> int:
    from operant._util.plain_yaml import yaml_text
    from operant.cluster import render_rayjob

    spec = _spec(args)
    asked = {"entrypointNumCpus": request.cpus, "entrypointNumGpus": request.gpus}
    runtime_env = {**request.runtime_env, **({"env_vars": dict(request.env)} if request.env else {})}
    resources = {key: value for key, value in asked.items() if value is not None}
    name = args.name or f"{spec.name}-job"
    print(yaml_text(render_rayjob(spec, name, request.words, runtime_env=runtime_env, resources=resources)), end="")
    if "working_dir" not in runtime_env:
        told = "a RayJob takes no files from here: the image, a volume, or --working-dir https://….zip has them"
        print(f"operant: {told}", file=sys.stderr)
    return 0


def submit_and_follow(spec: ClusterSpec | None, address: str | None, request: JobRequest, *, wait: bool = True) -> int:
    """Begin a job and show what it prints; its exit code."""
    from operant.cluster.jobs import reach, submit

    with reach(spec, address) as ray:
        job = submit(ray, request)
        print(f"operant: job {job}", file=sys.stderr, flush=True)
        return _follow(ray, job) if wait else 0


def _follow(ray: RayCluster, job: str) -> int:
    from operant.cluster.jobs import follow, stop

    printed = 0

    def said(line: str) -> None:
        print(f"operant: {line}", file=sys.stderr, flush=True)

    def out(text: str) -> None:
        nonlocal printed
        sys.stdout.write(text)
        sys.stdout.flush()
        printed += len(text)

    try:
        return follow(ray, job, out, said)
    except KeyboardInterrupt:
        if not _asked_to_stop():
            words = f"{ray.option} {job}"
            said(f"{job} goes on; `operant cluster logs {words}` follows it, `operant cluster stop {words}` ends it")
            return 130
    if stop(ray, job):
        said(f"{job} is stopped")
    return follow(ray, job, out, said, printed)  # its last words, and what it recorded last


def _asked_to_stop() -> bool:
    """After ctrl-C; whoever says nothing leaves the job running."""
    if not sys.stdin.isatty():
        return False
    try:
        return input("\nStop the job, or leave it running? [s/L] ").strip().lower() in ("s", "stop")
    except (EOFError, KeyboardInterrupt):
        print(file=sys.stderr)
        return False


def _reach(args: argparse.Namespace) -> Any:
    from operant.cluster.jobs import reach

    return reach(None if args.address else _spec(args), args.address)


def _jobs(args: argparse.Namespace) -> int:
    from operant._util.units import ago
    from operant.cluster.jobs import job_rows

    with _reach(args) as ray:
        rows = [(name, status, ago(began), entrypoint) for name, status, began, entrypoint in job_rows(ray)]
    print_table(("JOB", "STATUS", "STARTED", "COMMAND"), rows, whole="JOB")
    return 0


def _logs(args: argparse.Namespace) -> int:
    from operant.cluster.jobs import last_job

    with _reach(args) as ray:
        return _follow(ray, last_job(ray, args.job))


def _stop(args: argparse.Namespace) -> int:
    from operant.cluster.jobs import last_job, stop

    with _reach(args) as ray:
        job = last_job(ray, args.job)
        if not stop(ray, job):
            raise OperantError(f"{job} does not run any more")
    print(f"{job} is stopped")
    return 0
