"""Balance a pole with a linear policy found by hill climbing, and record how it went.

    python examples/tracking/hill_climb.py --iterations 60

Everything that is recorded shows up in `operant runs` and `operant runs show last`.
"""

from __future__ import annotations

import argparse

import numpy as np

from operant import SummaryWriter


def balance(weights: np.ndarray, rng: np.random.Generator, limit: int = 500) -> tuple[int, list[float]]:
    """Steps for which the policy `push right if weights . state > 0` keeps the pole up, and the pole's angles."""
    x, speed, angle, spin = rng.uniform(-0.05, 0.05, 4)
    angles = []
    for step in range(limit):
        force = 10.0 if weights @ (x, speed, angle, spin) > 0 else -10.0
        # Barto, Sutton and Anderson (1983), the equations of the classic cart-pole.
        push = (force + 0.05 * spin**2 * np.sin(angle)) / 1.1
        turn = (9.8 * np.sin(angle) - np.cos(angle) * push) / (0.5 * (4 / 3 - 0.1 * np.cos(angle) ** 2 / 1.1))
        x, speed = x + 0.02 * speed, speed + 0.02 * (push - 0.05 * turn * np.cos(angle) / 1.1)
        angle, spin = angle + 0.02 * spin, spin + 0.02 * turn
        angles.append(float(angle))
        if abs(x) > 2.4 or abs(angle) > 0.2095:
            return step + 1, angles
    return limit, angles


def picture(angles: list[float]) -> np.ndarray:
    """The pole's angle over time, as a grey picture."""
    image = np.ones((48, 200))
    columns = np.linspace(0, 199, len(angles)).astype(int)
    rows = np.clip(24 - np.array(angles) / 0.21 * 23, 0, 47).astype(int)
    image[rows, columns] = 0.0
    return image


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--iterations", type=int, default=60)
    parser.add_argument("--noise", type=float, default=0.5)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    best, best_return = np.zeros(4), 0.0
    with SummaryWriter("hill-climb", config=vars(args), tags=["cart-pole"]) as writer:
        for iteration in range(args.iterations):
            weights = best + args.noise * rng.normal(size=4)
            tries = [balance(weights, rng) for _ in range(4)]
            mean = float(np.mean([steps for steps, _ in tries]))
            if mean >= best_return:
                best, best_return = weights, mean
            writer.add_scalars(
                {"return": mean, "best return": best_return, "size of weights": np.abs(best).sum()}, iteration
            )
        writer.add_image("angle of the pole", picture(balance(best, rng)[1]), args.iterations, dataformats="HW")
        print(f"best return {best_return:.0f} of 500, recorded as {writer.run_id}")


if __name__ == "__main__":
    main()
