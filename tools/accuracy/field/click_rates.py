"""deepctr-torch's DeepFM, as in its documentation."""
import numpy as np
from deepctr_torch.inputs import DenseFeat, SparseFeat, get_feature_names
from deepctr_torch.models import DeepFM

rng = np.random.default_rng(0)
columns = [SparseFeat("c%d" % i, 5000, embedding_dim=16) for i in range(6)] + [DenseFeat("d%d" % i, 1) for i in range(4)]
rows = {n: (rng.integers(0, 5000, 8192) if n[0] == "c" else rng.random(8192)) for n in get_feature_names(columns)}
model = DeepFM(columns, columns, task="binary", device="cuda:0")
model.compile("adam", "binary_crossentropy", metrics=["binary_crossentropy", "auc"])
model.fit(rows, rng.integers(0, 2, 8192).astype("float32"), batch_size=512, epochs=2, validation_split=0.2, verbose=2)
