"""Watch the best policy of a run: in a window where there is a screen, elsewhere as a GIF."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from operant.cli._trusting import add_trust, asking
from operant.errors import UsageError

if TYPE_CHECKING:
    from operant.training.playback import LoadedPolicy


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="the run's id, the start of it, or `last`")
    parser.add_argument("--episodes", type=int, default=1, help="how many episodes to play (default 1)")
    parser.add_argument("--seed", type=int, default=0, help="decides where they start")
    parser.add_argument("--output", type=Path, help="write a GIF here, also where there is a screen")
    parser.add_argument("--no-window", action="store_true", help="write a GIF (view.gif in the run's folder)")
    add_trust(parser)
    parser.add_argument("--root", help="the .operant folder (default: the nearest one)")


def run(args: argparse.Namespace) -> int:
    from operant.training.playback import NoWindow, show_episodes

    if args.episodes < 1 or args.seed < 0:
        raise UsageError(f"--episodes is {args.episodes} and --seed {args.seed}; at least 1 and 0 are needed")
    if args.output is None and not args.no_window and _has_screen():
        try:
            _tell(asking(args, lambda trust: show_episodes(args.run, args.episodes, args.seed, args.root, trust=trust)))
            return 0
        except NoWindow as reason:
            print(f"{reason}; a GIF instead")
        except KeyboardInterrupt:
            return 0
    return _write_gif(args)


def _write_gif(args: argparse.Namespace) -> int:
    from operant.tracking import Run
    from operant.training.playback import load_policy, record_episodes, write_gif

    policy = asking(args, lambda trust: load_policy(args.run, args.root, trust=trust))
    frames = record_episodes(policy, args.episodes, args.seed)
    path = args.output or Run.open(args.run, args.root).folder / "view.gif"
    write_gif(frames, path)
    _tell(policy)
    print(f"wrote {path} ({len(frames)} frames)")
    return 0


def _tell(policy: LoadedPolicy) -> None:
    shown = ", ".join(f"{value:.2f}" for value in policy.returns) or "no episode ended"
    print(f"policy of step {policy.step:,} (evaluated at {policy.mean_return:.2f}); returns here: {shown}")


def _has_screen() -> bool:
    if sys.platform in ("darwin", "win32"):
        return sys.stdout.isatty()
    return sys.stdout.isatty() and bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
