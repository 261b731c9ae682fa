"""Use what a run has learned in a program of one's own: the best policy, and any Gymnasium environment like its own."""

from __future__ import annotations

import gymnasium

from operant.training import load_policy, train


def main() -> None:
    result = train("cartpole-ppo", ["total_steps=20000"])
    policy = load_policy(result.run_id)  # or "last", or any id of `operant runs`
    env = gymnasium.make("CartPole-v1")
    obs, _ = env.reset(seed=1)
    total, over = 0.0, False
    while not over:
        action = policy.act(obs[None])[0]  # many observations at once are one call
        obs, reward, terminated, truncated, _ = env.step(action)
        total += float(reward)
        over = terminated or truncated
    print(f"an episode of {result.run_id}: return {total:.0f}")


if __name__ == "__main__":
    main()
