"""Lightning with one of its callbacks or strategies: lightning_callbacks.py NAME."""
import sys
import tempfile

import lightning as L
from lightning.pytorch.callbacks import BackboneFinetuning, BatchSizeFinder, EarlyStopping, GradientAccumulationScheduler, LearningRateFinder, ModelCheckpoint, StochasticWeightAveraging
from lightning_net import Net

name = sys.argv[1]
out = tempfile.mkdtemp()
callbacks = {
    "finetuning": lambda: [BackboneFinetuning(unfreeze_backbone_at_epoch=2, verbose=True)],
    "swa": lambda: [StochasticWeightAveraging(1e-2, swa_epoch_start=2)],
    "batch_size": lambda: [BatchSizeFinder(max_trials=3, steps_per_trial=2)],
    "lr_finder": lambda: [LearningRateFinder(num_training_steps=10)],
    "accumulate": lambda: [GradientAccumulationScheduler({0: 4, 2: 2})],
    "stopping": lambda: [EarlyStopping("val_loss", patience=2), ModelCheckpoint(out, monitor="val_acc", mode="max", save_last=True)],
}.get(name, lambda: [])()
more = {"ddp": {"devices": 2, "strategy": "ddp"}, "fsdp": {"devices": 2, "strategy": "fsdp"}, "bf16": {"precision": "bf16-mixed", "gradient_clip_val": 1.0}}.get(name, {"devices": 1})
trainer = L.Trainer(max_epochs=4, accelerator="gpu", callbacks=callbacks, default_root_dir=out, logger=False, enable_checkpointing=name == "stopping", **more)
trainer.fit(Net())
