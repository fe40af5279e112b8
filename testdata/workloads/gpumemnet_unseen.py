#!/usr/bin/env python3
"""One of the well-known models that GPUMemNet was tried on unseen, rebuilt from its name.

    gpumemnet_unseen.py MODEL BATCH

Image models are TIMM's, at the default input, on PyTorch's ImageNet loop with SGD and momentum; language models are Hugging Face's with random weights and 512
tokens, AdamW. What was measured is known by name and batch alone: input, optimizer and loop are assumptions. fp32. Prints PyTorch's own peaks at the end.
"""
import argparse

import torch

TOKENS = 512
IMAGE_MODELS = {
    "vgg16": "vgg16", "resnet50": "resnet50", "Xception": "legacy_xception", "mobilenetV2": "mobilenetv2_100", "efficientnet": "efficientnet_b0",
    "inception": "inception_v3",
}


def language_models():
    import transformers as t

    return {
        "BERT_base": lambda: t.BertForMaskedLM(t.BertConfig()),
        "BERT_large": lambda: t.BertForMaskedLM(t.BertConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)),
        "xlnet_base": lambda: t.XLNetLMHeadModel(t.XLNetConfig(d_model=768, n_layer=12, n_head=12, d_inner=3072)),
        "xlnet_large": lambda: t.XLNetLMHeadModel(t.XLNetConfig()),
        "gpt2_xl": lambda: t.GPT2LMHeadModel(t.GPT2Config(n_embd=1600, n_layer=48, n_head=25)),
    }


def train_images(name, size, iterations, device):
    import timm

    model = timm.create_model(IMAGE_MODELS[name]).to(device)
    shape = tuple(timm.data.resolve_data_config({}, model=model)["input_size"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    criterion = torch.nn.CrossEntropyLoss().to(device)
    model.train()
    for _ in range(iterations):
        images = torch.zeros((size,) + shape).to(device, non_blocking=True)
        labels = torch.zeros(size, dtype=torch.int64).to(device, non_blocking=True)
        loss = criterion(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def train_language(make, size, iterations, device):
    model = make().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)
    model.train()
    for _ in range(iterations):
        ids = torch.zeros(size, TOKENS, dtype=torch.int64).to(device)
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("batch", type=int)
    parser.add_argument("--iterations", type=int, default=4)
    args = parser.parse_args()
    device = torch.device("cuda")
    if args.model in IMAGE_MODELS:
        train_images(args.model, args.batch, args.iterations, device)
    else:
        train_language(language_models()[args.model], args.batch, args.iterations, device)
    print("peak_allocated_bytes", torch.cuda.max_memory_allocated())
    print("peak_reserved_bytes", torch.cuda.max_memory_reserved())


if __name__ == "__main__":
    main()
