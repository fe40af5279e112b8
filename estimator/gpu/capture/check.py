"""Say whether this Python can use a GPU, as one line of JSON: what `gresize gpu capture` and `gresize calibrate` ask first."""

import json
import os

out = dict(torch=None, cuda=None, available=False, why="", device="", virtual=bool(os.environ.get("GRESIZE_VGPU_DIR")))
try:
    import torch

    out.update(torch=torch.__version__, cuda=torch.version.cuda)
    try:
        torch.cuda.init()
        out.update(available=True, device=torch.cuda.get_device_name(0))
    except Exception as e:
        out["why"] = str(e)[:300]
except Exception as e:
    out["why"] = "import torch: %s" % str(e)[:300]
print(json.dumps(out))
