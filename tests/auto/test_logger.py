"""`OperantLogger` alone, in a Lightning program that knows nothing else of Operant."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader, TensorDataset

from operant.auto import OperantLogger
from operant.tracking import Run, SummaryWriter


class Line(LightningModule):
    def __init__(self, slope=2.0, fail=False):
        super().__init__()
        self.save_hyperparameters()
        self.layer = torch.nn.Linear(1, 1)
        self.fail = fail

    def training_step(self, batch, _):
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.layer(x), y)
        self.log("loss", loss)
        if self.fail:
            raise RuntimeError("as asked")
        return loss

    def test_step(self, batch, _):
        self.log("test_loss", torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1]))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def on_train_epoch_end(self):
        picture = np.zeros((3, 8, 8), np.uint8)
        self.logger.log_image("picture", [picture], step=self.global_step)
        self.logger.log_video("film", [np.zeros((2, 8, 8, 3), np.uint8)], step=self.global_step)
        self.logger.log_text("note", "an epoch has ended", step=self.global_step)


def data():
    x = torch.linspace(-1, 1, 32)[:, None]
    return DataLoader(TensorDataset(x, 2 * x), batch_size=8)


def fit(logger, tmp_path, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's advice about workers, and its own deprecations
        trainer = Trainer(
            accelerator="cpu",
            max_epochs=3,
            logger=logger,
            log_every_n_steps=1,
            default_root_dir=tmp_path,
            enable_progress_bar=False,
            enable_model_summary=False,
            enable_checkpointing=False,
        )
        trainer.fit(Line(**options), data())
        return trainer


def test_metrics_settings_and_media_are_recorded(tmp_path):
    logger = OperantLogger("line", tags=["mine"])
    trainer = fit(logger, tmp_path, slope=3.0)
    run = Run.open(logger.version)
    loss = run.scalars("loss")
    assert len(loss) == 12 and (loss["value"] > 0).all()
    assert list(loss["step"]) == list(range(12))
    assert run.params["slope"] == 3.0 and "mine" in run.tags and run.name == logger.name == "line"
    assert {one.tag for one in run.media()} == {"picture", "film"} and len(run.text("note")) == 3
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer.test(trainer.lightning_module, data(), verbose=False)  # the run is still open after the fit
    run.refresh()
    assert len(run.scalars("test_loss")) == 1
    logger.experiment.close()
    assert Run.open(logger.version).status == "FINISHED" and logger.save_dir == str(run.folder)


def test_a_failed_fit_is_a_failed_run(tmp_path):
    logger = OperantLogger("line")
    with pytest.raises(RuntimeError, match="as asked"):
        fit(logger, tmp_path, fail=True)
    run = Run.open(logger.version)
    assert run.status == "ERROR"


def test_a_writer_that_is_given_stays_open(tmp_path):
    with SummaryWriter("given") as writer:
        logger = OperantLogger(writer=writer)
        fit(logger, tmp_path)
        assert logger.version == writer.run_id
        writer.add_scalar("after", 1.0, 0)
    assert len(Run.open(writer.run_id).scalars("after")) == 1


def test_a_run_is_continued(tmp_path):
    first = OperantLogger("line")
    fit(first, tmp_path)
    first.experiment.close()
    again = OperantLogger(run=first.version, resumed_from=5)
    again.log_metrics({"loss": 7.0}, 6)
    again.experiment.close()
    assert list(Run.open(first.version).scalars("loss")["step"]) == [0, 1, 2, 3, 4, 5, 6]
