"""pytorch-tabnet's classifier with its validation and early stopping."""
import numpy as np
import torch
from pytorch_tabnet.tab_model import TabNetClassifier

rng = np.random.default_rng(0)
x, y = rng.standard_normal((4096, 32)).astype("float32"), rng.integers(0, 3, 4096)
clf = TabNetClassifier(n_d=32, n_a=32, n_steps=4, optimizer_fn=torch.optim.Adam, optimizer_params={"lr": 2e-2}, device_name="cuda", verbose=1)
clf.fit(x[:3072], y[:3072], eval_set=[(x[3072:], y[3072:])], eval_metric=["accuracy"], max_epochs=5, patience=3, batch_size=1024, virtual_batch_size=128)
print(clf.predict(x[3072:])[:5], clf.feature_importances_[:5])
