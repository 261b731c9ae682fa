#!/bin/sh
# Eight trials of DQN; `sh tune.sh tune.engine=ray` has Ray Tune run them. The same command goes on with a search that was cut off.
exec operant harness --config-name dqn cli.mode=tune tune.num_samples=8 tune.parallel=2 runtime.name=cartpole-lr \
    'training.lr=tag(log,interval(1e-4,1e-2))' 'training.gamma=choice(0.9,0.99)' stop_conditions.timesteps_total=5000 "$@"
