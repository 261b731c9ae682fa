#!/bin/sh
# Hydra's own sweep: one training for each value.
exec operant harness --config-name dqn cli.mode=train --multirun training.gamma=0.9,0.95 stop_conditions.timesteps_total=5000 "$@"
