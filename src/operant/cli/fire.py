"""Wildfires: `operant fire simulate scenario.yaml` burns one without agents; maps, perimeters and pictures of it."""

from __future__ import annotations

import argparse
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True)
    simulate = verbs.add_parser("simulate", help="burn a scenario without agents")
    simulate.add_argument("scenario", type=Path, help="a YAML file with the settings of a scenario (docs/wildfire.md)")
    simulate.add_argument("--seed", type=int, default=0, help="decides weather and ignition where they are drawn")
    simulate.add_argument("--output", type=Path, help="folder for the results (default: the file's name without .yaml)")
    simulate.add_argument(
        "--every", type=float, default=10.0, help="minutes between perimeters and frames (default 10)"
    )
    simulate.add_argument("--size", type=int, default=512, help="pixels of the longer side of pictures (default 512)")
    simulate.add_argument("--no-gif", action="store_true", help="leave out the gif, which takes longest")


def run(args: argparse.Namespace) -> int:
    import numpy as np

    from operant.envs.wildfire.scenarios import load_scenario
    from operant.envs.wildfire.simulate import simulate

    notes: list[str] = []
    scenario = load_scenario(args.scenario, args.seed, notes)
    for note in notes:
        print(f"SimFire's {note}")
    fire = simulate(scenario, every=args.every)
    folder = args.output or args.scenario.with_suffix("")
    files = fire.write(folder, gif=not args.no_gif, size=args.size)
    burnt = np.isfinite(fire.arrival)
    lost = scenario.land.assets[burnt].sum()
    print(
        f"{fire.area[-1]:,.1f} ha ({burnt.mean():.0%} of the map) burned in {fire.minutes[-1]:,.0f} minutes"
        + (f"; assets lost: {lost:,.0f} of {scenario.land.assets.sum():,.0f}" if scenario.land.assets.any() else "")
    )
    for file in files:
        print(f"wrote {file}")
    return 0
