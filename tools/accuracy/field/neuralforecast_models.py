"""NeuralForecast: fits one of its models on made-up series and forecasts: neuralforecast_models.py MODEL."""
import sys

import numpy as np
import pandas as pd
from neuralforecast import NeuralForecast
from neuralforecast import models

rng = np.random.default_rng(0)
frame = pd.concat(
    pd.DataFrame({"unique_id": "s%d" % i, "ds": pd.date_range("2020-01-01", periods=400), "y": np.sin(np.arange(400) / 7) + rng.standard_normal(400)}) for i in range(16)
)
more = {"LSTM": {"encoder_hidden_size": 64}}.get(sys.argv[1], {})
model = getattr(models, sys.argv[1])(h=24, input_size=96, max_steps=30, val_check_steps=10, early_stop_patience_steps=2, accelerator="gpu", devices=1, **more)
nf = NeuralForecast(models=[model], freq="D")
nf.fit(frame, val_size=24)
print(nf.predict().head())
