"""Train from Python: a preset with changes, what came of it, and the same run resumed for longer."""

from __future__ import annotations

from operant.training import resume, train


def main() -> None:
    result = train("cartpole-ppo", ["total_steps=20000", "evaluation.every=5000"])
    print(f"best mean return {result.best_return:.1f} at step {result.best_step} ({result.run_id})")
    longer = resume(result.run_id, ["total_steps=40000"])
    print(f"best mean return {longer.best_return:.1f} at step {longer.best_step}")


if __name__ == "__main__":
    main()
