"""A tree of one's own, outside the package: `python main.py cli.mode=train`."""

import hydra
from omegaconf import DictConfig

from operant.harness import run


@hydra.main(version_base=None, config_path="conf", config_name="acrobot")
def main(cfg: DictConfig) -> None:
    run(cfg)


if __name__ == "__main__":
    main()
