"""pytorch-forecasting's Temporal Fusion Transformer, as in its tutorial."""
import lightning.pytorch as pl
import numpy as np
import pandas as pd
from pytorch_forecasting import QuantileLoss, TemporalFusionTransformer, TimeSeriesDataSet

rng = np.random.default_rng(0)
frame = pd.concat(
    pd.DataFrame({"series": str(i), "t": range(150), "y": np.sin(np.arange(150) / 7) + rng.standard_normal(150), "x": rng.standard_normal(150)}) for i in range(8)
).reset_index(drop=True)
training = TimeSeriesDataSet(
    frame[frame.t < 130], time_idx="t", target="y", group_ids=["series"], max_encoder_length=48, max_prediction_length=12,
    time_varying_known_reals=["t"], time_varying_unknown_reals=["y", "x"], add_relative_time_idx=True, add_target_scales=True, add_encoder_length=True,
)
validation = TimeSeriesDataSet.from_dataset(training, frame, predict=True, stop_randomization=True)
model = TemporalFusionTransformer.from_dataset(training, learning_rate=0.03, hidden_size=64, attention_head_size=4, hidden_continuous_size=32, loss=QuantileLoss())
trainer = pl.Trainer(max_epochs=2, accelerator="gpu", devices=1, gradient_clip_val=0.1, limit_train_batches=15, logger=False, enable_checkpointing=False)
trainer.fit(model, training.to_dataloader(train=True, batch_size=64), validation.to_dataloader(train=False, batch_size=64))
