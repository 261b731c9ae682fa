"""Open the page: searches and runs, live, in a browser."""

from __future__ import annotations

import argparse


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine only)")
    parser.add_argument("--port", type=int, default=4270, help="port to listen on; 0 picks a free one (default: 4270)")
    parser.add_argument("--open", action="store_true", help="open it in the browser")
    parser.add_argument("--root", help="the .operant folder (default: the nearest one)")
    parser.add_argument(
        "--name",
        action="append",
        default=[],
        metavar="HOST",
        help="another name under which browsers reach this server, such as a proxy's; may be given again",
    )


def run(args: argparse.Namespace) -> int:
    from operant.tracking.places import find_root
    from operant.web.ui import run_ui

    root = find_root(args.root)

    def ready(address: str, token: str | None) -> None:
        shown = address if token is None else f"{address}/?token={token}"
        print(f"Operant shows {root} at {shown}", flush=True)
        if token is not None:
            print("Whoever has this address may look and stop jobs; it is shown once.", flush=True)

    try:
        run_ui(root, args.host, args.port, ready, args.name, open_page=args.open)
    except KeyboardInterrupt:  # how it is meant to be ended
        pass
    return 0
