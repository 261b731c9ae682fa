"""The YAML files that `operant harness` composes; `hydra.searchpath: [pkg://operant.harness.conf]` adds them."""
