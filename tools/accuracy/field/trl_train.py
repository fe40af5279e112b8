"""TRL on a small Llama: trl_train.py sft|dpo|grpo|reward."""
import sys

from datasets import Dataset
from texts import LINES, folder, llama, texts, tokenizer

name = sys.argv[1]
common = dict(output_dir=folder(), per_device_train_batch_size=8, num_train_epochs=1, report_to="none", logging_steps=5, save_strategy="no")
if name == "sft":
    from trl import SFTConfig, SFTTrainer

    trainer = SFTTrainer(llama(), args=SFTConfig(max_length=128, packing=True, eval_strategy="epoch", **common), train_dataset=texts(), eval_dataset=texts(), processing_class=tokenizer())
elif name == "dpo":
    from trl import DPOConfig, DPOTrainer

    pairs = Dataset.from_dict({"prompt": LINES, "chosen": LINES[::-1], "rejected": LINES[50:] + LINES[:50]})
    trainer = DPOTrainer(llama(), ref_model=llama(), args=DPOConfig(max_length=128, **common), train_dataset=pairs, processing_class=tokenizer())
elif name == "grpo":
    from trl import GRPOConfig, GRPOTrainer

    args = GRPOConfig(num_generations=4, max_completion_length=32, max_steps=6, **dict(common, num_train_epochs=1))
    trainer = GRPOTrainer(llama(), reward_funcs=lambda completions, **_: [float(len(c)) for c in completions], args=args, train_dataset=Dataset.from_dict({"prompt": LINES}), processing_class=tokenizer())
else:
    from transformers import LlamaConfig, LlamaForSequenceClassification
    from trl import RewardConfig, RewardTrainer

    model = LlamaForSequenceClassification(LlamaConfig(vocab_size=1024, hidden_size=256, intermediate_size=688, num_hidden_layers=4, num_attention_heads=8, num_labels=1, pad_token_id=1))
    trainer = RewardTrainer(model, args=RewardConfig(max_length=128, **common), train_dataset=Dataset.from_dict({"chosen": LINES, "rejected": LINES[::-1]}), processing_class=tokenizer())
trainer.train()
