"""Send runs that could not be sent while their server was away."""

from __future__ import annotations

import argparse


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--uri", help="only runs for this server (default: the one in OPERANT_TRACKING_URI, else all)")


def run(args: argparse.Namespace) -> int:
    from operant.tracking.remote.address import tracking_token, tracking_uri
    from operant.tracking.remote.client import Client, ServerAway
    from operant.tracking.remote.send import spools, sync_spool

    wanted = (args.uri or tracking_uri() or "").rstrip("/")
    code = 0
    for uri, spool in spools():
        if wanted and uri != wanted:
            continue
        try:
            with Client(uri, tracking_token()) as client:
                sent = sync_spool(client, spool)
        except ServerAway as error:
            print(f"{uri}: {error}")
            code = 1
        else:
            print(f"{uri}: sent {len(sent)} run{'s' if len(sent) != 1 else ''}" + "".join(f"\n  {one}" for one in sent))
    return code
