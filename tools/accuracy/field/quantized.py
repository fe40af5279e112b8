"""torchao: quantized.py adam8bit|int8|qat: optimizers with states of 8 bits, weights of int8 under training, quantization-aware training."""
import sys

import torch
from texts import llama

name = sys.argv[1]
model = llama(inner=704).cuda()  # groups of 32 weights share a scale
if name == "adam8bit":
    from torchao.optim import AdamW8bit

    optimizer = AdamW8bit(model.parameters(), 1e-3)
else:
    from torchao.quantization import quantize_

    if name == "int8":
        from torchao.prototype.quantized_training import int8_weight_only_quantized_training

        from torchao.optim import _AdamW

        quantize_(model.model, int8_weight_only_quantized_training())
        optimizer = _AdamW(model.parameters(), 1e-3)  # those of PyTorch write to weights in ways that these have not
    else:
        from torchao.quantization import Int8DynamicActivationIntxWeightConfig
        from torchao.quantization.qat import QATConfig

        quantize_(model, QATConfig(Int8DynamicActivationIntxWeightConfig(), step="prepare"))
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
for step in range(12):
    tokens = torch.randint(0, 1024, (8, 128), device="cuda")
    loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(step, loss.item())
