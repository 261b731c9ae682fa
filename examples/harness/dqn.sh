#!/bin/sh
# DQN learns CartPole; `sh dqn.sh algo.library=rllib` does it with RLlib, from the same tree.
exec operant harness --config-name dqn cli.mode=train "$@"
