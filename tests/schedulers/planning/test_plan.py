"""A search's YAML: that of GML's HPO works, every mistake is found with file, line and key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from operant.errors import ConfigError
from operant.schedulers.planning.plan import SearchPlan, load_plan

DOCUMENT = """\
task:
    template: "srun -p pat_dev -n1 --gres gpu:1 python mnist.py \\
            --config '{config}' --batch-size {batch-size} \\
            --log-interval {log-interval} --pavi"
    search_args:
        - type: Categorical
          name: batch-size
          data: [1024, 512]
        - type: Categorical
          name: log-interval
          data: [10, 20]
        - type: File
          name: config
          file: config.yaml
          place_holder: 'file_art'
          search_args:
            - type: Categorical
              name: epochs
              data: [3, 4, 5]
            - type: Nested
              data:  [
                          {scheduler.step_size: 1, scheduler.gamma: 0.5},
                          {scheduler.step_size: 2, scheduler.gamma: 0.7}
                      ]
searcher:
    type: GridSearcher
    reward_attribute: Test Acc
scheduler:
    type: FIFO
    parallel_size: 1
    stop_criterion:
        max_tries: 2
        time_limits: 1
        max_reward: inf
        time_limits_per_job: 1
pavi:
    compare:
        name: compare_new
    scalars: ['Test Acc']
use_spe: False
generate_log: True
"""


@pytest.fixture
def load(tmp_path: Path) -> Any:
    (tmp_path / "config.yaml").write_text("epochs: 5\nscheduler:\n  step_size: 1  # a comment\n  gamma: 0.7\n")

    def load(text: str = DOCUMENT, **replaced: str) -> SearchPlan:
        for old, new in replaced.items():
            text = text.replace(old, new)
        (tmp_path / "search.yaml").write_text(text)
        return load_plan(tmp_path / "search.yaml", folder=tmp_path)

    return load


def changed(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new)


def test_gmls_search_as_it_stands(load: Any) -> None:
    plan = load()
    assert plan.space.size == 24 and plan.rule.attribute == "Test Acc" and plan.parallel_size == 1
    rules = plan.stop.rules
    assert (rules.max_tries, rules.time_limits, rules.max_reward) == (2, 3600.0, None)
    assert plan.limits.seconds == 3600.0 and plan.compare == {"name": "compare_new"} and plan.scalars == ["Test Acc"]
    values = {"config": "/w/config.yaml", "batch-size": 512, "log-interval": 10}
    argv = plan.template.render(values)
    assert argv[argv.index("python") :] == [
        "python",
        "mnist.py",
        "--config",
        "/w/config.yaml",
        "--batch-size",
        "512",
        "--log-interval",
        "10",
        "--pavi",
    ]


def test_the_second_example_takes_the_later_argument(load: Any) -> None:
    nested = "        - type: Nested\n          data: [{lr: 0.5, batch-size: 512}, {lr: 1, batch-size: 1024}]\n"
    text = changed(DOCUMENT, "        - type: File\n", nested + "        - type: File\n")
    text = changed(text, "          search_args:\n", "          args:\n")
    plan = load(text)
    assert plan.space.size == 2 * 2 * 6
    assert any("'batch-size' is given twice" in note for note in plan.notes)
    assert any("uses 'lr'" in note for note in plan.notes)


def test_gmls_spelling_is_accepted_with_a_note(load: Any) -> None:
    text = changed(
        DOCUMENT, "type: GridSearcher", "type: EvolutionSearhcer\n    population_size: 8\n    gen_trial_limit: 100"
    )
    plan = load(text)
    assert type(plan.searcher).__name__ == "EvolutionSearcher"
    assert any("EvolutionSearhcer" in note for note in plan.notes)


@pytest.mark.parametrize("beside", [True, False])
def test_an_assessor_inside_the_scheduler_or_beside_it(load: Any, beside: bool) -> None:
    block = "assessor:\n    type: MedianStopAssessor\n    start_step: 4\n"
    indented = "    " + block.replace("\n", "\n    ").rstrip(" ")
    text = (
        DOCUMENT + block
        if beside
        else changed(DOCUMENT, "scheduler:\n    type: FIFO\n", "scheduler:\n    type: FIFO\n" + indented)
    )
    assert type(load(text).assessor).__name__ == "MedianStopAssessor"


def test_an_assessor_minimises_when_the_search_does(load: Any) -> None:
    text = changed(DOCUMENT, "type: GridSearcher", "type: GridSearcher\n    optimize_mode: minimize")
    plan = load(text + "assessor: {type: MedianStopAssessor}\n")
    assert plan.assessor is not None and plan.assessor.optimize_mode == "minimize"
    with pytest.raises(ConfigError, match="both must be the same"):
        load(text + "assessor: {type: MedianStopAssessor, optimize_mode: maximize}\n")


MISTAKES = [
    ("parallel_size: 1", "paralel_size: 1", 30, "scheduler.paralel_size", "did you mean 'parallel_size'"),
    ("type: GridSearcher", "type: GridSearch", 26, "searcher.type", "did you mean 'GridSearcher'"),
    ("reward_attribute: Test Acc", "reward_atribute: Test Acc", 27, "searcher.reward_atribute", "did you mean"),
    ("{batch-size}", "{batch_size}", 2, "task.template", "did you mean 'batch-size'"),
    ("data: [10, 20]", "data: []", 11, "search_args[1].data", "empty"),
    ("- type: Nested", "- type: Nestd", 20, "search_args[2].search_args[1].type", "did you mean 'Nested'"),
    ("name: epochs", "name: epoch", 17, "search_args[2].search_args[0]", "did you mean 'epochs'"),
    ("file: config.yaml", "file: conf.yaml", 14, "search_args[2].file", "cannot be read"),
    ("file: config.yaml", "file: ../config.yaml", 14, "search_args[2].file", "below the current folder"),
    ("max_tries: 2", "max_tries: two", 32, "stop_criterion.max_tries", "whole number"),
    ("time_limits: 1\n", "time_limits: soon\n", 33, "stop_criterion.time_limits", "1h, 30m or 90s"),
    ("        name: compare_new", "        nam: x", 38, "pavi.compare.nam", "did you mean 'name'"),
    ("use_spe: False", "use_spe: maybe", 40, "use_spe", "true or false"),
    ("type: FIFO", "type: LIFO", 29, "scheduler.type", "did you mean 'FIFO'"),
    ("generate_log", "generat_log", 41, "generat_log", "did you mean 'generate_log'"),
    ("srun -p pat_dev -n1 --gres gpu:1 python", "nosuchprogram", 2, "task.template", "no program 'nosuchprogram'"),
    ("type: GridSearcher", "type: BatchSearcher", 6, "task.search_args[0].type", "BatchSearcher takes only Nested"),
    ("type: GridSearcher", "type: GridSearcher\n    reward: best", 27, "searcher.reward", "unknown reward 'best'"),
    ("type: GridSearcher", "type: GridSearcher\n    pattern: 'acc'", 27, "searcher.pattern", "group"),
    ("type: GridSearcher", "type: GridSearcher\n    ckpt_save_path: ../x", 27, "ckpt_save_path", "inside the job"),
    (
        "type: FIFO",
        "type: FIFO\n    filter_criterion: batch_size > 3",
        30,
        "filter_criterion",
        "did you mean 'batch-size'",
    ),
    ("type: FIFO", "type: FIFO\n    gpus_per_job: 3\n    gpus: [0]", 30, "gpus_per_job", "this machine shows 1"),
]


@pytest.mark.parametrize(("old", "new", "line", "key", "message"), MISTAKES)
def test_mistakes_have_file_line_key_and_the_nearest(
    load: Any, tmp_path: Path, old: str, new: str, line: int, key: str, message: str
) -> None:
    with pytest.raises(ConfigError) as found:
        load(changed(DOCUMENT, old, new))
    text = str(found.value)
    assert text.startswith(f"{tmp_path / 'search.yaml'}:{line}: "), text
    assert key in text and message in text, text


def test_grid_over_a_real_without_step(load: Any) -> None:
    with pytest.raises(ConfigError, match=r"search\.yaml:\d+: task\.search_args\[\d\]\.step: .*Real without `step`"):
        load(
            changed(
                DOCUMENT,
                "- type: Categorical\n          name: batch-size\n          data: [1024, 512]",
                "- type: Real\n          name: batch-size\n          data: [0, 1]",
            )
        )


def test_broken_yaml_and_a_missing_file(load: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"search\.yaml:\d+"):
        load("task: [\n")
    with pytest.raises(ConfigError, match="mapping with `task`"):
        load("")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_plan(tmp_path / "none.yaml")


def test_numbers_of_yaml_1_2(load: Any) -> None:
    text = changed(DOCUMENT, "data: [10, 20]", "data: [1e-5, 1e3]")
    assert load(text).space.kwspaces["log-interval"].data[0] == 1e-5


def test_mock_pavi_2_refuses_an_assessor(load: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOCK_PAVI", "2")
    assert not load().rule.scalars
    with pytest.raises(ConfigError, match="assessor: an assessor needs scalars, and MOCK_PAVI=2"):
        load(DOCUMENT + "assessor: {type: MedianStopAssessor}\n")
    monkeypatch.setenv("MOCK_PAVI", "3")
    with pytest.raises(ConfigError, match="MOCK_PAVI is 0, 1 or 2"):
        load()


@pytest.mark.parametrize("rule", ["time_limits: 1", "no_report", "assessor", "racing"])
def test_lag_is_refused_with_rules_that_depend_on_time(load: Any, rule: str) -> None:
    text = changed(DOCUMENT, "type: GridSearcher", "type: GridSearcher\n    lag: 3")
    if not rule.startswith("time"):
        text = text.replace("        time_limits: 1\n", "")
        text = text.replace("        time_limits_per_job: 1\n", "")
    more = {
        "no_report": "",
        "assessor": "assessor: {type: MedianStopAssessor}\n",
        "racing": "seeds: [0, 1, 2]\nracing: true\n",
    }
    if rule == "no_report":
        text = changed(text, "type: FIFO", "type: FIFO\n    no_report_timeout: 1m")
    with pytest.raises(ConfigError, match="`lag` makes proposals independent of timing"):
        load(text + more.get(rule, ""))


def test_custom_imports_tell_where_they_fail(load: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"custom_imports\[0\]: there is no file"):
        load(DOCUMENT + "custom_imports: [nothing.py]\n")
    (tmp_path / "broken.py").write_text("x = 1\ny = x / 0\n")
    with pytest.raises(ConfigError, match=r"broken\.py:2: ZeroDivisionError"):
        load(DOCUMENT + "custom_imports: [broken.py]\n")


def test_a_changed_file_has_another_digest(load: Any) -> None:
    assert load().digest == load().digest != load(changed(DOCUMENT, "max_tries: 2", "max_tries: 3")).digest
