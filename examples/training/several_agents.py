"""Several agents: independent learners and MADDPG on a task that takes two, and the policies in a loop of PettingZoo's.

python examples/training/several_agents.py          a few seconds
"""

from __future__ import annotations

from operant.envs.toys import Gates
from operant.training import load_policy, train

COMMON = {
    "env": {"id": "operant.envs.toys:Gates", "num_envs": 8},
    "model": {"hidden": [32], "activation": "relu"},
    "total_steps": 6000,
    "evaluation": {"episodes": 64, "every": 3000},
}
TOGETHER = {"name": "maddpg", "train_every": 16, "batch": 128, "learning_starts": 400}
ALONE = {"name": "dqn", "train_every": 8, "batch": 16, "learning_starts": 40, "learning_rate": 0.01}


def main() -> None:
    alone = train({**COMMON, "algorithm": ALONE, "policy_mapping": "independent"})
    together = train({**COMMON, "algorithm": TOGETHER})
    print(f"independent DQN {alone.final_return:.2f}, MADDPG {together.final_return:.2f}")

    policy, env = load_policy(together.run_id), Gates()
    seen, _ = env.reset(seed=1)
    while env.agents:
        actions = policy.act({agent: obs[None] for agent, obs in seen.items()})
        seen, rewards, *_ = env.step({agent: int(actions[agent][0]) for agent in env.agents})
        print({agent: int(action[0]) for agent, action in actions.items()}, rewards)


if __name__ == "__main__":
    main()
