"""Ultralytics: trains and validates a YOLO11 from its description: yolo.py detect|segment|classify."""
import sys
import tempfile

import numpy as np
from PIL import Image
from ultralytics import YOLO, settings

settings.update({"sync": False})
task, place = sys.argv[1], tempfile.mkdtemp()
rng = np.random.default_rng(0)
import os

for part in ("train", "val"):
    for i in range(24):
        folder = "%s/%s/%d" % (place, part, i % 3) if task == "classify" else "%s/images/%s" % (place, part)
        os.makedirs(folder, exist_ok=True)
        os.makedirs("%s/labels/%s" % (place, part), exist_ok=True)
        Image.fromarray(rng.integers(0, 255, (160, 160, 3), dtype="uint8")).save("%s/%d.jpg" % (folder, i))
        with open("%s/labels/%s/%d.txt" % (place, part, i), "w") as file:
            for _ in range(4):
                x, y = rng.uniform(0.3, 0.7, 2)
                corners = (x - 0.1, y - 0.1, x + 0.1, y - 0.1, x + 0.1, y + 0.1)
                file.write("%d %s\n" % (rng.integers(3), "%f %f 0.2 0.2" % (x, y) if task == "detect" else " ".join("%f" % c for c in corners)))
with open(place + "/data.yaml", "w") as file:
    file.write("path: %s\ntrain: images/train\nval: images/val\nnames: [a, b, c]\n" % place)
model = YOLO({"detect": "yolo11n.yaml", "segment": "yolo11n-seg.yaml", "classify": "yolo11n-cls.yaml"}[task])
model.train(data=place if task == "classify" else place + "/data.yaml", epochs=3, imgsz=160, batch=8, device=0, workers=0, amp=False, plots=False, pretrained=False, project=place, close_mosaic=1)
