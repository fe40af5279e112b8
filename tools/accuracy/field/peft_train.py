"""PEFT's methods in a loop of the program's own: peft_train.py METHOD."""
import sys

import peft
import torch
from texts import LINES, llama, tokenizer

target = ["q_proj", "v_proj"]
configs = {
    "lora": lambda: peft.LoraConfig(r=8, target_modules=target, lora_dropout=0.05),
    "dora": lambda: peft.LoraConfig(r=8, target_modules=target, use_dora=True),
    "shira": lambda: peft.ShiraConfig(r=8, target_modules=target),
    "vblora": lambda: peft.VBLoRAConfig(r=4, target_modules=target, num_vectors=64, vector_length=128),
    "adalora": lambda: peft.AdaLoraConfig(target_modules=target, init_r=8, target_r=4, total_step=24, tinit=4, tfinal=4),
    "ia3": lambda: peft.IA3Config(target_modules=target, feedforward_modules=[]),
    "prefix": lambda: peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=16),
}
tokens = tokenizer()
model = peft.get_peft_model(llama().cuda(), configs[sys.argv[1]]())
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-3)
for epoch in range(2):
    for i in range(0, 96, 8):
        batch = tokens(LINES[i:i + 8], return_tensors="pt", padding="max_length", max_length=64, truncation=True).to("cuda")
        loss = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], labels=batch["input_ids"]).loss
        loss.backward()
        optimizer.step()
        if sys.argv[1] == "adalora":
            model.base_model.update_and_allocate(epoch * 12 + i // 8)
        optimizer.zero_grad()
    print(epoch, loss.item())
