"""Record episodes of the best policy of a run, to learn from them.

operant record last --episodes 50                    into RUN.npz here
operant record last --output expert.npz --explore    as it acts in training
operant train pendulum-gail algorithm.expert=expert.npz

operant record last --format minari --output pendulum/expert-v0        where Minari finds it
operant train pendulum-gail algorithm.expert=minari:pendulum/expert-v0
"""

from __future__ import annotations

import argparse
import re
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
    parser.add_argument("--format", choices=("npz", "minari"), default="npz", help="of what is written (default npz)")
    parser.add_argument(
        "--output",
        help="where to (default: the run's id with .npz, in this folder); with Minari's format the dataset's name "
        "(default: ENVIRONMENT/RUN-v0)",
    )
    add_trust(parser)
    parser.add_argument("--root", help="the .operant folder (default: the nearest one)")


def run(args: argparse.Namespace) -> int:
    from operant.data.batches import make_room, recorded_rows, write_recorded
    from operant.data.minari import new_folder, write_minari
    from operant.tracking import Run
    from operant.training.playback import environment_spec, load_policy, play_transitions

    if args.episodes < 1:
        raise UsageError(f"--episodes is {args.episodes}; it must be at least 1")
    if args.seed < 0:
        raise UsageError(f"--seed is {args.seed}; it must be at least 0")
    run_id = Run.open(args.run, args.root).id
    policy = asking(args, lambda trust: load_policy(args.run, args.root, trust=trust))
    env, config = policy.env, policy.config
    if args.format == "minari":
        place = args.output or "/".join(re.sub(r"[^\w-]+", "-", str(one)) for one in (config.env.id, f"{run_id}-v0"))
        new_folder(place)  # what is wrong with the name is said before anything is played
    else:
        place = args.output or f"{run_id}.npz"
        make_room(Path(place))
    steps = play_transitions(policy, args.episodes, args.seed, args.explore)
    if args.format == "minari":
        spaces = env.single_observation_space, env.single_action_space
        write_minari(place, recorded_rows(steps), *spaces, environment_spec(config), str(config.algorithm["name"]))
    else:
        write_recorded(Path(place), steps)
    mean = statistics.fmean(policy.returns)
    print(f"wrote {place}: {args.episodes} episodes, {len(steps):,} transitions, mean return {mean:.2f}")
    return 0
