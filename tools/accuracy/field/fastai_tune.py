"""fastai: fine_tune of a pretrained-like resnet on pictures, frozen first: fastai_tune.py pictures|tabular."""
import sys
import tempfile

import numpy as np
import pandas as pd
from fastai.tabular.all import Categorify, CategoryBlock, FillMissing, Normalize, TabularDataLoaders, tabular_learner
from fastai.vision.all import ImageDataLoaders, Resize, accuracy, resnet18, vision_learner
from PIL import Image

rng = np.random.default_rng(0)
if sys.argv[1] == "pictures":
    folder = tempfile.mkdtemp()
    names = []
    for i in range(160):
        names.append("%d_%d.png" % (i % 4, i))
        Image.fromarray(rng.integers(0, 255, (96, 96, 3), dtype="uint8")).save("%s/%s" % (folder, names[-1]))
    loaders = ImageDataLoaders.from_name_func(folder, [__import__("pathlib").Path(folder) / n for n in names], lambda n: n.split("_")[0], item_tfms=Resize(96), bs=16, num_workers=0, device="cuda")
    learner = vision_learner(loaders, resnet18, pretrained=False, metrics=accuracy)
    learner.freeze()
    learner.fine_tune(2, freeze_epochs=1)
else:
    frame = pd.DataFrame({"a": rng.choice(list("xyz"), 2000), "b": rng.standard_normal(2000), "y": rng.choice(["no", "yes"], 2000)})
    loaders = TabularDataLoaders.from_df(frame, procs=[Categorify, FillMissing, Normalize], cat_names=["a"], cont_names=["b"], y_names="y", y_block=CategoryBlock(), bs=128, device="cuda")
    learner = tabular_learner(loaders, layers=[512, 256], metrics=accuracy)
    learner.fit_one_cycle(3)
