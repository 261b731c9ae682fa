#!/bin/sh
# PPO learns CartPole; `sh ppo.sh algo.library=rllib` does it with RLlib, from the same tree.
exec operant harness --config-name ppo cli.mode=train "$@"
