"""Searches over a config file that stays untouched: what each task gets, runs, leaves and says when it fails."""

from __future__ import annotations

import ast
import logging
import os
import pickle
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.machine import patience

from operant.errors import UsageError
from operant.hpo import NoResultError, R, hpo, randint, run_scheduler_local, uniform
from operant.hpo.config_tasks import ConfigScheduler, TaskFailed
from operant.hpo.run_config import EasyDict, apply_values, is_main_block

EXAMPLE = Path(__file__).parents[2] / "examples" / "hpo" / "template" / "cartpole_dqn_config.py"

HEAD = """
from easydict import EasyDict
main_config = EasyDict(dict(exp_name="x", policy=dict(gamma=0.97, layers=[dict(n=1), 2]), note="kept"))
"""
TRAINS = (
    HEAD
    + """
if __name__ == "__main__":
    import os, pickle
    os.makedirs(main_config.exp_name)
    with open(os.path.join(main_config.exp_name, "result.pkl"), "wb") as file:
        pickle.dump({"eval_value": main_config.policy.gamma * 2, "second": main_config.policy.layers[1]}, file)
"""
)


@pytest.fixture
def made() -> Iterator[Any]:
    schedulers: list[ConfigScheduler] = []

    def make(text: str, **options: Any) -> ConfigScheduler:
        Path("template.py").write_text(text)
        schedulers.append(run_scheduler_local("template.py", **{"dijob_project_name": "proj", **options}))
        return schedulers[-1]

    yield make
    for one in schedulers:
        one.stop()


def test_a_search_over_a_file(made: Any, caplog: pytest.LogCaptureFixture) -> None:
    scheduler = made(TRAINS)
    before = Path("template.py").read_bytes()
    opt = hpo(scheduler.get_hpo_callable()).grid().max_steps(3).max_workers(2).maximize(R["eval_value"])
    with caplog.at_level(logging.INFO, "operant.hpo"):
        cfg, ret, metrics = opt.spaces({"policy": {"gamma": uniform(0.5, 1)}}).run()
    assert cfg == {"policy": {"gamma": 1.0}}  # nothing added
    assert ret == {"eval_value": 2.0, "second": 2} and metrics["time"] > 0
    assert Path("template.py").read_bytes() == before == Path("proj-0/config.py").read_bytes()
    assert Path("proj-2/hpo/result.pkl").is_file() and Path("proj-2/stdout").is_file()
    assert scheduler.status() == {
        "task_defined": [0, 1, 2],
        "task_running": [],
        "task_waiting": [],
        "task_finished": [0, 1, 2],
        "task_success": [0, 1, 2],
        "task_abnormal": [],
    }
    table = scheduler.status_table().splitlines()
    assert table[0] == "+---------------+-----------+" and table[1] == "| status        | instances |"
    assert table[2] == "+===============+===========+" and table[3] == "| task_defined  | [0, 1, 2] |"
    assert any("task_abnormal" in record.getMessage() for record in caplog.records)


def test_a_second_run_in_the_same_folder_finds_its_own_results(made: Any) -> None:
    assert made(TRAINS).run_task({"policy": {"gamma": 1.0}})["eval_value"] == 2.0
    again = made(TRAINS)
    assert again.run_task({"policy": {"gamma": 3.0}})["eval_value"] == 6.0
    assert again.status()["task_success"] == [1]


def test_four_workers_are_four(made: Any) -> None:
    meeting = (
        HEAD
        + """
if __name__ == "__main__":
    import os, pickle, time, pathlib
    here = pathlib.Path(main_config.exp_name); here.mkdir()
    deadline = time.monotonic() + SECONDS
    while len(list(pathlib.Path().glob("proj-*/hpo"))) < 4:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    (here / "result.pkl").write_bytes(pickle.dumps({"v": 1}))
"""
    ).replace("SECONDS", str(patience(100)))
    opt = hpo(made(meeting).get_hpo_callable()).grid(silent=True).max_workers(4).maximize(R["v"]).max_retries(0)
    opt.spaces({"policy": {"gamma": randint(1, 4)}}).run()
    assert [one.status for one in opt.history] == ["FINISHED"] * 4


def test_an_own_limit_of_running_tasks(made: Any) -> None:
    scheduler = made(TRAINS, max_number_of_running_task=1)
    peak = 0
    threads = [threading.Thread(target=scheduler.run_task, args=({},)) for _ in range(3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        peak = max(peak, len(scheduler.status()["task_running"]))
        time.sleep(0.005)
    assert peak == 1 and scheduler.status()["task_success"] == [0, 1, 2]


def test_a_failed_task_says_why(made: Any) -> None:
    scheduler = made(HEAD + 'if __name__ == "__main__":\n    raise RuntimeError(f"no {main_config.policy.gamma}")\n')
    opt = hpo(scheduler.get_hpo_callable()).grid(silent=True).max_retries(0).maximize(R["v"])
    with pytest.raises(NoResultError, match="RuntimeError: no 7"):
        opt.spaces({"policy": {"gamma": randint(7, 7)}}).run()
    assert "RuntimeError: no 7" in (opt.history[0].error or "") and "proj-0/stderr" in (opt.history[0].error or "")
    assert scheduler.status()["task_abnormal"] == [0]


def test_a_misspelt_key_is_found_before_anything_runs(made: Any) -> None:
    scheduler = made(TRAINS)
    opt = hpo(scheduler.get_hpo_callable()).grid(silent=True).maximize(R["v"])
    with pytest.raises(UsageError, match=r"main_config\['policy'\] has no key 'gama' \(did you mean 'gamma'"):
        opt.spaces({"policy": {"gama": randint(7, 7)}}).run()
    assert scheduler.status()["task_defined"] == [] and not list(Path().glob("proj-*"))


def test_a_time_out_kills_the_training_and_is_not_tried_again(made: Any) -> None:
    text = (
        HEAD
        + """
if __name__ == "__main__":
    import subprocess
    child = subprocess.Popen(["sleep", "600"])
    open("child", "w").write(str(child.pid))
    child.wait()
"""
    )
    for seconds in (3, 20, 120):  # on a busy machine the training has hardly begun after three
        scheduler = made(text, time_out=seconds, dijob_project_name=f"within-{seconds}")
        opt = hpo(scheduler.get_hpo_callable()).grid(silent=True).max_retries(2).maximize(R["v"])
        with pytest.raises(NoResultError):
            opt.spaces({"policy": {"gamma": randint(7, 7)}}).run()
        error = opt.history[0].error or ""
        assert f"time-out of {seconds} s" in error and scheduler.status()["task_defined"] == [0]
        if Path("child").exists():
            break
    state = Path(f"/proc/{Path('child').read_text()}/stat")
    assert not state.exists() or " Z " in state.read_text()


DING = """
import os, pickle

def serial_pipeline(cfgs, seed):
    main, create = cfgs
    folder = main.exp_name + main.get("suffix", "")  # DI-engine adds the time when the folder is there
    os.makedirs(folder)
    with open(os.path.join(folder, "result.pkl"), "wb") as file:
        pickle.dump({"eval_value": main.policy.gamma, "easy": type(main).__module__, "create": create}, file)
"""


@pytest.mark.parametrize("suffix", ["", "_20260131"])
def test_with_the_real_libraries_they_are_used(made: Any, suffix: str) -> None:
    """What is installed beside the file comes before Operant's stand-ins; and a file need not have a main block."""
    Path("ding").mkdir()
    Path("ding/__init__.py").touch()
    Path("ding/entry.py").write_text(DING)
    Path("easydict.py").write_text("from operant.hpo.run_config import EasyDict as Base\nclass EasyDict(Base): ...\n")
    scheduler = made(HEAD + f"main_config.suffix = {suffix!r}\ncreate_config = {{'policy': 'dqn'}}\n")
    result = scheduler.run_task({"policy": {"gamma": 0.5}})
    assert result == {"eval_value": 0.5, "easy": "easydict", "create": {"policy": "dqn"}}


def test_without_a_result(made: Any) -> None:
    with pytest.raises(TaskFailed, match="neither"):
        made(HEAD + 'if __name__ == "__main__":\n    pass\n').run_task({})


def test_a_run_is_a_result_too(made: Any) -> None:
    text = (
        HEAD
        + """
if __name__ == "__main__":
    from operant import SummaryWriter
    with SummaryWriter("run", system_metrics=False) as writer:
        writer.add_scalar("eval_value", main_config.policy.gamma, 1)
"""
    )
    assert made(text).run_task({"policy": {"gamma": 0.25}}) == {"eval_value": 0.25}


class _Evil:
    def __reduce__(self) -> Any:
        return os.mkdir, ("owned",)


def test_a_result_is_only_data(made: Any) -> None:
    evil = pickle.dumps({"v": _Evil()})
    text = (
        HEAD
        + f"""
if "__main__" == __name__:
    import os
    os.makedirs(main_config.exp_name)
    open(main_config.exp_name + "/result.pkl", "wb").write({evil!r})
"""
    )
    scheduler = made(text)
    with pytest.raises(UsageError, match="was not read"):
        scheduler.run_task({})
    assert not Path("owned").exists() and scheduler.status()["task_abnormal"] == [0]


@pytest.mark.parametrize(
    ("text", "message"),
    [("main_config = (", "no Python"), ("other = {}", "does not define `main_config`"), (None, "cannot be read")],
)
def test_a_file_that_cannot_be_searched(text: str | None, message: str) -> None:
    if text is not None:
        Path("bad.py").write_text(text)
    with pytest.raises(UsageError, match=message):
        run_scheduler_local("bad.py")


def test_limits_and_names() -> None:
    Path("template.py").write_text(TRAINS)
    for wrong in ({"max_number_of_running_task": 0}, {"time_out": 0}, {"dijob_project_name": "a/b"}):
        with pytest.raises(UsageError):
            run_scheduler_local("template.py", **wrong)  # type: ignore[arg-type]
    with run_scheduler_local("template.py", max_number_of_tasks=1) as scheduler:
        assert scheduler.project == "template"
        scheduler.run_task({})
        with pytest.raises(TaskFailed, match="at most 1"):
            scheduler.run_task({})
    with pytest.raises(TaskFailed, match="stopped"):
        scheduler.run_task({})


def test_stop_ends_what_runs(made: Any) -> None:
    scheduler = made(HEAD + 'if __name__ == "__main__":\n    open("begun", "w"); import time; time.sleep(600)\n')
    errors: list[BaseException] = []

    def run() -> None:
        try:
            scheduler.run_task({})
        except TaskFailed as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    deadline = time.monotonic() + patience(60)
    while not Path("begun").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    scheduler.stop()
    thread.join(60)
    assert not thread.is_alive() and len(errors) == 1


def test_values_are_put_where_they_belong() -> None:
    config = EasyDict({"a": {"b": 1, "rate": 2}, "l": [{"x": 1, "y": 2}, 3], "shape": [1, 2, 3]})
    apply_values(config, {"a": {"b": 5, "else": 6}, "l": [{"x": 9}, 4], "shape": [7], "new": {"deep": 1}})
    assert config == {"a": {"b": 5, "rate": 2, "else": 6}, "l": [{"x": 9, "y": 2}, 4], "shape": [7], "new": {"deep": 1}}
    assert config.new.deep == 1 and config.l[0].x == 9
    with pytest.raises(UsageError, match=r"main_config\['a'\] has no key 'rat' \(did you mean 'rate'\?\)"):
        apply_values(config, {"a": {"rat": 1}})


def test_main_blocks_are_found() -> None:
    body = ast.parse(EXAMPLE.read_text()).body
    assert is_main_block(body[-1]) and not any(is_main_block(one) for one in body[:-1])
