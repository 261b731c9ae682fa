"""Receive the runs of other machines."""

from __future__ import annotations

import argparse
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine only)")
    parser.add_argument("--port", type=int, default=8642, help="port to listen on; 0 picks a free one (default: 8642)")
    parser.add_argument("--root", help="the .operant folder (default: the nearest one)")
    parser.add_argument(
        "--token-file",
        type=Path,
        help="file that holds the token; made if missing (default: server-token in the .operant folder)",
    )
    parser.add_argument(
        "--name",
        action="append",
        default=[],
        metavar="HOST",
        help="another name under which programs reach this server, such as a Service's; may be given again",
    )


def run(args: argparse.Namespace) -> int:
    from operant.http.security import load_token
    from operant.http.server import serve
    from operant.tracking.places import find_root

    root = find_root(args.root)
    root.mkdir(parents=True, exist_ok=True)
    token_file = args.token_file or root / "server-token"
    token = load_token(token_file)

    def ready(address: str) -> None:
        print(f"Operant serves {root} at {address}")
        print("Send runs here from another shell or machine:")
        print(f"  export OPERANT_TRACKING_URI={address}")
        print(f"  export OPERANT_TRACKING_TOKEN_FILE={token_file}   # or OPERANT_TRACKING_TOKEN", flush=True)

    serve(root, args.host, args.port, token, ready, args.name)
    return 0
