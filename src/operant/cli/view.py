"""Watch the best policy of a run: a GIF, or a window where there is a screen."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="the run's id, the start of it, or `last`")
    parser.add_argument("--episodes", type=int, default=1, help="how many episodes to play (default 1)")
    parser.add_argument("--seed", type=int, default=0, help="decides where they start")
    parser.add_argument("--output", type=Path, help="the GIF to write (default: view.gif in the run's folder)")
    parser.add_argument("--no-window", action="store_true", help="write the GIF only, also where there is a screen")
    parser.add_argument("--root", help="the .operant folder (default: the nearest one)")


def run(args: argparse.Namespace) -> int:
    from operant.tracking import Run
    from operant.training.viewing import load_policy, record_episodes, write_gif

    folder = Run.open(args.run, args.root).folder
    policy = load_policy(args.run, args.root)
    frames, returns = record_episodes(policy, args.episodes, args.seed)
    path = args.output or folder / "view.gif"
    write_gif(frames, path)
    shown = ", ".join(f"{value:.2f}" for value in returns) or "no episode ended"
    print(f"policy of step {policy.step:,} (evaluated at {policy.mean_return:.2f}); returns here: {shown}")
    print(f"wrote {path} ({len(frames)} frames)")
    if not args.no_window and _has_screen():
        _open(path)
    return 0


def _has_screen() -> bool:
    if sys.platform in ("darwin", "win32"):
        return sys.stdout.isatty()
    return sys.stdout.isatty() and bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _open(path: Path) -> None:
    opener = {"darwin": ["open"], "win32": ["cmd", "/c", "start", ""]}.get(sys.platform, ["xdg-open"])
    try:
        subprocess.Popen([*opener, str(path)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    except FileNotFoundError:
        print(f"there is no {opener[0]} to show it with; open the file yourself")
