"""Transformers beyond language models: transformers_more.py t5|vit|whisper|wav2vec|detr, with its Trainer and evaluation."""
import sys

import numpy as np
import torch
from datasets import Dataset
from texts import LINES, folder, tokenizer
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments, Trainer, TrainingArguments
import transformers as t

name = sys.argv[1]
common = dict(output_dir=folder(), num_train_epochs=1, per_device_train_batch_size=8, per_device_eval_batch_size=8, report_to="none", save_strategy="no", eval_strategy="epoch", logging_steps=4)
rng = np.random.default_rng(0)
if name == "t5":
    tokens = tokenizer()
    model = t.T5ForConditionalGeneration(t.T5Config(vocab_size=1024, d_model=256, d_ff=512, num_layers=3, num_heads=4, decoder_start_token_id=1, pad_token_id=1, eos_token_id=3))
    rows = Dataset.from_dict({"input_ids": [tokens(l)["input_ids"] for l in LINES[:96]], "labels": [tokens(l)["input_ids"] for l in LINES[96:192]]})
    trainer = Seq2SeqTrainer(model, Seq2SeqTrainingArguments(predict_with_generate=True, generation_max_length=32, **common), train_dataset=rows, eval_dataset=rows.select(range(32)), data_collator=t.DataCollatorForSeq2Seq(tokens, model, pad_to_multiple_of=64))
elif name == "vit":
    model = t.ViTForImageClassification(t.ViTConfig(hidden_size=192, num_hidden_layers=4, num_attention_heads=3, intermediate_size=768, num_labels=10, image_size=96, patch_size=8))
    rows = [{"pixel_values": torch.rand(3, 96, 96), "labels": i % 10} for i in range(96)]
    trainer = Trainer(model, TrainingArguments(bf16=True, **common), train_dataset=rows, eval_dataset=rows[:32], compute_metrics=lambda p: {"accuracy": float((p.predictions.argmax(1) == p.label_ids).mean())})
elif name == "wav2vec":
    model = t.Wav2Vec2ForCTC(t.Wav2Vec2Config(hidden_size=192, num_hidden_layers=3, num_attention_heads=4, intermediate_size=512, vocab_size=32, conv_dim=(64,) * 7, mask_time_prob=0.05, ctc_loss_reduction="mean"))
    rows = [{"input_values": torch.randn(16000), "labels": torch.randint(1, 32, (12,))} for i in range(64)]
    trainer = Trainer(model, TrainingArguments(**common), train_dataset=rows, eval_dataset=rows[:16])
else:
    model = t.WhisperForConditionalGeneration(t.WhisperConfig(vocab_size=1024, d_model=192, encoder_layers=2, decoder_layers=2, encoder_attention_heads=3, decoder_attention_heads=3, encoder_ffn_dim=512, decoder_ffn_dim=512, max_source_positions=200, num_mel_bins=80, pad_token_id=1, bos_token_id=2, eos_token_id=3, decoder_start_token_id=2, suppress_tokens=None, begin_suppress_tokens=None))
    rows = [{"input_features": torch.randn(80, 400), "labels": torch.randint(4, 1000, (24,))} for i in range(64)]
    trainer = Seq2SeqTrainer(model, Seq2SeqTrainingArguments(**common), train_dataset=rows, eval_dataset=rows[:16])
trainer.train()
