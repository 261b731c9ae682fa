"""Searching the settings of a launch: a library asks, an experiment starts, its reward is reported.

python sweep.py            with Operant's own search
python sweep.py optuna     with Optuna
"""

import sys

from operant.auto import generate_algorithm_config, generate_env_config, generate_training_config, launch
from operant.hpo import R, choice, hpo, uniform


def make_config(rate: float, batch: int, episodes: int = 60) -> dict:
    config = generate_algorithm_config("DQN", {"frame_config": {"learning_rate": rate, "batch_size": batch}})
    config["frame_config"] |= {"update_rate": 0.01, "update_steps": None, "epsilon_decay": 0.998}
    config = generate_training_config("sweep", 20, episodes, generate_env_config("openai_gym", config))
    for key in ("train_env_config", "test_env_config"):
        config[key]["render_every_episode"] = None
    return config


@hpo
def experiment(point: dict) -> dict:
    result = launch(make_config(**point))
    return {"reward": result.best_reward, "run": result.run_id}


def with_operant(trials: int = 4) -> dict:
    space = {"rate": 10 ** uniform(-4, -2), "batch": choice([32, 64])}
    search = experiment.tpe(silent=True).spaces(space).maximize(R["reward"]).max_steps(trials).max_workers(1).seed(0)
    config, result, _ = search.run()
    print(search.history.table(3))
    return {**config, **result}


def with_optuna(trials: int = 4) -> dict:
    import optuna

    def objective(trial: optuna.Trial) -> float:
        config = make_config(
            trial.suggest_float("rate", 1e-4, 1e-2, log=True), trial.suggest_categorical("batch", [32, 64])
        )
        return launch(config).best_reward

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0))
    study.optimize(objective, n_trials=trials)
    return {**study.best_params, "reward": study.best_value}


if __name__ == "__main__":
    print((with_optuna if sys.argv[1:] == ["optuna"] else with_operant)())
