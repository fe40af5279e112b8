"""DeepSpeed: deepspeed_zero.py 2|3, without operators that it would have to compile."""
import sys

import deepspeed
import torch
from torch import nn

model = nn.Sequential(*[m for _ in range(6) for m in (nn.Linear(1024, 1024), nn.GELU())], nn.Linear(1024, 10))
config = {
    "train_micro_batch_size_per_gpu": 16, "gradient_accumulation_steps": 2, "bf16": {"enabled": True}, "zero_optimization": {"stage": int(sys.argv[1])},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}}, "gradient_clipping": 1.0,
}
engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
for step in range(16):
    x, y = torch.randn(16, 1024).bfloat16().to(engine.device), torch.randint(10, (16,)).to(engine.device)
    loss = nn.functional.cross_entropy(engine(x), y)
    engine.backward(loss)
    engine.step()
    print(step, loss.item())
