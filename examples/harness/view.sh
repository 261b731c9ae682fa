#!/bin/sh
# What the newest run has learned: view.gif and view.csv in this folder.
exec operant harness --config-name dqn cli.mode=view algo.checkpoint_path=last runtime.local_dir=. evaluation.evaluation_duration=2 "$@"
