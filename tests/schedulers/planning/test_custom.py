"""Classes of the user's own from files beside the YAML, written as for GML's HPO: without imports."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml

from operant.errors import ConfigError
from operant.schedulers import NaiveScheduler
from operant.schedulers.engine.state import read_state

CLASSES = """
@STOP_CRITERIONS.register_module()
class Counting(BaseStopCriterion):

    def __init__(self, *args, **kwargs):
        self.options = kwargs

    def before_run(self, scheduler):
        self.began = get_current_time()
        scheduler.step = 0

    def before_iter(self, scheduler):
        scheduler.step += 1

    def after_iter(self, scheduler):
        if scheduler.step == 3:
            scheduler.is_stop = True

    def after_run(self, scheduler):
        with open(self.options["report"], "w") as stream:
            stream.write("%d steps, %s" % (scheduler.step, self.began <= get_current_time()))


@FILTER_CRITERIONS.register_module()
class NoTwo(BaseFilterCriterion):

    def __init__(self, *args, **kwargs):
        pass

    def filter(self, job):
        return job.arg_dict["x"] == 2


@ASSESSORS.register_module()
class Lenient:

    def __init__(self, optimize_mode="maximize"):
        self.ended = []

    def assess_job(self, trial_job_id, latest_trial_history):
        return AssessResult.Good

    def job_end(self, trial_job_id):
        self.ended.append(trial_job_id)


@SEARCHERS.register_module()
class Backwards(BaseSearcher):

    def __init__(self, search_space, reward_attribute="acc"):
        super(Backwards, self).__init__(search_space, reward_attribute)
        self._configs = [{"x": x} for x in self.space.kwspaces["x"].data]

    def get_config(self):
        return self._configs.pop() if self._configs else None
"""


def test_classes_that_import_nothing(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "mine.py").write_text(CLASSES)
    (source / "p.py").write_text("import json, sys; json.dump({'acc': float(sys.argv[1])}, open('result.json', 'w'))")
    config = {
        "custom_imports": ["mine.py"],
        "task": {
            "template": f"{sys.executable} -I -S p.py {{x}}",
            "search_args": [{"type": "Categorical", "name": "x", "data": [0, 1, 2, 3]}],
        },
        "searcher": {"type": "Backwards", "reward_attribute": "acc"},
        "scheduler": {
            "stop_criterion": {"type": "Counting", "report": str(tmp_path / "report"), "max_tries": 50},
            "filter_criterion": {"type": "NoTwo"},
            "assessor": {"type": "Lenient"},
        },
    }
    (source / "search.yaml").write_text(yaml.safe_dump(config))
    scheduler = NaiveScheduler(tmp_path / "searches" / "s", source / "search.yaml", source=source)
    outcome = scheduler.run()
    state, _ = read_state(tmp_path / "searches" / "s")
    assert [one.config["x"] for one in state.proposals.values() if not one.filtered] == [3, 1, 0]
    assert outcome.reward == 3.0 and (tmp_path / "report").read_text() == "3 steps, True"
    assert scheduler.plan.assessor.ended == ["0", "2", "3"]  # type: ignore[union-attr]


def test_a_criterion_that_fails_ends_the_search_and_its_jobs(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    text = "@FILTER_CRITERIONS.register_module()\nclass Broken(BaseFilterCriterion):\n    def filter(self, job):\n"
    text += "        return job.arg_dict['y'] > 1 if job.arg_dict['x'] else False\n"
    (source / "broken.py").write_text(text)
    config = {
        "custom_imports": ["broken.py"],
        "task": {
            "template": f"{sys.executable} -c 'import time; time.sleep(600)' {{x}}",
            "search_args": [{"type": "Categorical", "name": "x", "data": [0, 1]}],
        },
        "scheduler": {"parallel_size": 1, "filter_criterion": {"type": "Broken"}, "grace_period": 1},
    }
    (source / "search.yaml").write_text(
        yaml.safe_dump({**config, "scheduler": {**config["scheduler"], "parallel_size": 2}})
    )
    with pytest.raises(KeyError):
        NaiveScheduler(tmp_path / "searches" / "s", source / "search.yaml", source=source).run()
    state, status = read_state(tmp_path / "searches" / "s")
    assert status == "ERROR" and {job.status for job in state.jobs.values()} <= {"ERROR"}


def test_an_unknown_class_names_the_nearest(tmp_path: Path) -> None:
    from operant.schedulers.planning.plan import make_plan

    config = {
        "task": {"search_args": [{"type": "Categorical", "name": "x", "data": [1]}]},
        "scheduler": {"stop_criterion": {"type": "NaivStopCriterion"}},
    }
    with pytest.raises(ConfigError, match="did you mean 'NaiveStopCriterion'"):
        make_plan(config, function=True)
