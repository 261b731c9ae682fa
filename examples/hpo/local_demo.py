"""Five trainings of a config file that stays as it is, four at a time; the search varies its discount factor."""

from pathlib import Path

from operant import logging
from operant.hpo import R, hpo, uniform
from operant.scheduler import run_scheduler_local


def demo():
    scheduler = run_scheduler_local(
        task_config_template_path=Path(__file__).parent / "template/cartpole_dqn_config.py",
        dijob_project_name="cartpole_dqn_hpo",
    )

    hpo_info = {"policy": {"discount_factor": uniform(0.95, 1)}}

    opt = hpo(scheduler.get_hpo_callable())
    cfg, ret, metrics = opt.grid().max_steps(5).max_workers(4).maximize(R["eval_value"]).spaces(hpo_info).run()
    print(cfg)
    print(ret)
    print(metrics)

    scheduler.stop()


if __name__ == "__main__":
    logging.try_init_root(logging.INFO)
    demo()
