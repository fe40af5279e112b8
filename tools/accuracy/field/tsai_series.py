"""tsai's TSClassifier with InceptionTime."""
import numpy as np
from tsai.all import TSClassifier, accuracy, get_splits

rng = np.random.default_rng(0)
x, y = rng.standard_normal((512, 3, 128)).astype("float32"), rng.integers(0, 4, 512).astype(str)
learner = TSClassifier(x, y, splits=get_splits(y, valid_size=0.2, show_plot=False), arch="InceptionTimePlus", metrics=accuracy, bs=64, device="cuda", verbose=False)
learner.fit_one_cycle(3, 1e-3)
