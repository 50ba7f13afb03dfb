"""train_lightning.py SHARDS DIRECTORY: Lightning; start it again and it goes on."""

import os
import sys

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from shardproof import ShuffledDataLoader


class Model(lightning.LightningModule):
    """A linear map that learns to return its input."""

    def __init__(self, d_model):
        super().__init__()
        self.map = torch.nn.Linear(d_model, d_model)

    def training_step(self, batch):
        act = batch["act"] / 1000
        return (self.map(act) - act).square().mean()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


def train(shards_dir, directory, n_epochs=2):
    """Train, and return the trainer."""
    lightning.seed_everything(0, verbose=False)
    loader = ShuffledDataLoader(shards_dir, layer=6, batch_size=4, seed=17, framework="torch")
    last = os.path.join(directory, "last.ckpt")
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=n_epochs,
        default_root_dir=directory,
        logger=False,
        callbacks=[
            ModelCheckpoint(
                dirpath=directory,
                filename="last",
                every_n_train_steps=5,
                enable_version_counter=False,
            )
        ],
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    # The loader itself: Lightning keeps its position in the checkpoint, also within an epoch.
    trainer.fit(Model(loader.d_model), loader, ckpt_path=last if os.path.exists(last) else None)
    return trainer


if __name__ == "__main__":
    done = train(*sys.argv[1:])
    print(f"{done.global_step} steps, weight {float(done.model.map.weight.sum()):.6f}")
