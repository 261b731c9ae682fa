"""The trainings of `local_demo.py` on a Kubernetes cluster, each as an object made from a manifest."""

from pathlib import Path

from operant import logging
from operant.hpo import R, hpo, uniform
from operant.scheduler import run_scheduler_k8s


def demo(manifest=Path(__file__).parent / "template/cartpole_dijob_with_empty_configmap.yml"):
    scheduler = run_scheduler_k8s(
        task_config_template_path=Path(__file__).parent / "template/cartpole_dqn_config.py",
        k8s_dijob_yaml_file_path=manifest,
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
