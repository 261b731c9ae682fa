"""Record episodes of the best policy of a run, to learn from them.

operant record last --episodes 50                    into RUN.npz here
operant record last --output expert.npz --explore    as it acts in training
operant train pendulum-gail algorithm.expert=expert.npz
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from operant.cli._trusting import add_trust, asking
from operant.errors import UsageError


def configure(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("run", help="the run's id, the start of it, or `last`")
    parser.add_argument("--episodes", type=int, default=50, help="how many (default 50)")
    parser.add_argument("--seed", type=int, default=0, help="decides where they start")
    parser.add_argument("--explore", action="store_true", help="act as in training, not greedily")
    parser.add_argument("--output", type=Path, help="where to (default: the run's id with .npz, in this folder)")
    add_trust(parser)
    parser.add_argument("--root", help="the .operant folder (default: the nearest one)")


def run(args: argparse.Namespace) -> int:
    from operant.tracking import Run
    from operant.training.playback import load_policy, record_transitions

    if args.episodes < 1:
        raise UsageError(f"--episodes is {args.episodes}; it must be at least 1")
    path = args.output or Path(f"{Run.open(args.run, args.root).id}.npz")
    policy = asking(args, lambda trust: load_policy(args.run, args.root, trust=trust))
    count = record_transitions(policy, path, args.episodes, args.seed, args.explore)
    mean = statistics.fmean(policy.returns)
    print(f"wrote {path}: {args.episodes} episodes, {count:,} transitions, mean return {mean:.2f}")
    return 0
