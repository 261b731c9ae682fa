"""Start Prometheus and Grafana over runs, searches and Ray; end them.

operant monitor start                     here: Prometheus on 9090, Grafana on 3000 where it is installed
operant monitor start --cluster fire      in the pod of a cluster's head; `operant cluster forward` shows them
operant monitor stop
OPERANT_METRICS=0 operant train …         a program that tells its metrics, and is found
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("verb", choices=["start", "stop"])
    parser.add_argument("--root", help="the .operant folder (default: the nearest one)")
    parser.add_argument("--cluster", metavar="NAME", help="in the pod of this cluster's head instead of here")
    parser.add_argument("--port", type=int, default=9090, help="of Prometheus (default: 9090)")
    parser.add_argument("--grafana-port", type=int, default=3000, help="of Grafana (default: 3000)")
    parser.add_argument(
        "--ray", type=Path, metavar="FOLDER", help="Ray's temporary folder (default: /tmp/ray, where that is there)"
    )
    parser.add_argument("--interval", default="10s", help="between two scrapes (default: 10s)")
    parser.add_argument("--aim", type=Path, metavar="REPO", help="Aim's server too, over this repository")


def run(args: argparse.Namespace) -> int:
    from operant.cluster.monitoring import running
    from operant.tracking.places import find_root

    if args.cluster is not None:
        return _in_head(args)
    root = find_root(args.root)
    if args.verb == "stop":
        running.stop(root, said=print)
        return 0
    ray = args.ray if args.ray is not None else Path("/tmp/ray")
    ray = ray if args.ray is not None or ray.is_dir() else None
    ports = {"port": args.port, "grafana_port": args.grafana_port}
    running.start(root, **ports, ray=ray, aim=args.aim, interval=args.interval, said=print)
    print("programs that run with OPERANT_METRICS=0 and `operant ui` are found by themselves")
    return 0


def _in_head(args: argparse.Namespace) -> int:
    """The same command in the head's pod, whose image has Operant, Prometheus and perhaps Grafana."""
    from operant.cluster import load_cluster
    from operant.cluster.applying import connect
    from operant.cluster.executing import run_in_pod
    from operant.cluster.forwarding import dashboard_target, find_pod

    spec = load_cluster(args.cluster)
    cluster = connect(spec)
    words = [spec.python, "-m", "operant", "monitor", args.verb, "--root", "/tmp/operant-monitor/.operant"]
    if args.verb == "start":
        words += ["--port", str(args.port), "--grafana-port", str(args.grafana_port)]
        words += ["--ray", str(args.ray or spec.head.ray_start.get("temp-dir", "/tmp/ray"))]
        words += ["--interval", args.interval, *(["--aim", str(args.aim)] if args.aim else [])]
    return run_in_pod(cluster, find_pod(cluster, dashboard_target(spec)), words, sys.stdout.write, sys.stderr.write)
