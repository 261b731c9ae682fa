"""`python -m operant.harness.trial TREE.json training.lr=0.001 …`: one trial of a search, as a job of any site."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from operant._util.plain_yaml import parse_yaml
from operant.errors import OperantError
from operant.harness.application import run_tree
from operant.harness.results import Result, check_name
from operant.harness.tuning import metric_of, with_values


def main(words: list[str]) -> int:
    tree = json.loads(Path(words[0]).read_text(encoding="utf-8"))
    values = {path: parse_yaml(text, path) for path, _, text in (word.partition("=") for word in words[1:])}
    metric, _ = metric_of(tree.get("tune") or {})

    def heard(result: Result) -> None:
        check_name(metric, result, f"tune.metric is {metric}", "no trial could be judged by it")

    try:
        run_tree(with_values(tree, values), heard=heard)
    except OperantError as error:
        sys.stderr.write(f"operant: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
