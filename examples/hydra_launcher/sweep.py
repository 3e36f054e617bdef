"""A sweep whose jobs Hydra's launchers start: each is a run of its own, into one log folder."""

from __future__ import annotations

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

import agentsys
from agentsys.extensions import shipped_config_dir


@hydra.main(version_base="1.3", config_path=str(shipped_config_dir().resolve()), config_name="config")
def job(_: DictConfig) -> None:
    """Run the cells that this job's overrides ask for.

    Raises:
        RuntimeError: If the run ended early, or some of its cases in errors: the launcher then says so.
    """
    done = agentsys.run(list(HydraConfig.get().overrides.task))
    if done.ended or done.errors:
        raise RuntimeError(f"{done.errors} cases ended in errors. {done.ended or ''}")


if __name__ == "__main__":
    job()
