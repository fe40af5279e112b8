#!/usr/bin/env python3
"""A transformer workload of xMem's published measurements, rebuilt from its description.

    xmem_transformer.py MODEL BATCH OPTIMIZER [ZERO_GRAD_POS]

Hugging Face's model (transformers 4.51.3) with random weights, built from a configuration written here, so nothing is
downloaded; batches of 128 tokens, of which those of a third of the texts are padding, since a third of the published
texts are empty lines; labels = inputs, learning rate 1e-3, fp32. A mask that masks something leads the models with
PyTorch's attention another way than one that masks nothing. The loop keeps the model's output alive through backward,
as the published one does. MODEL and OPTIMIZER are spelled as in the published table. ZERO_GRAD_POS
says where the gradients are dropped: 0 at the start of the iteration, 1 just before backward, 2 after the step (the
default: the older published runs, which do not record it, dropped them there). Prints PyTorch's own peaks at the end.
"""
import argparse

import torch
import transformers

TOKENS = 128


def gpt2(**changes):
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**changes))


def gpt_neo_125m():
    return transformers.GPTNeoForCausalLM(
        transformers.GPTNeoConfig(
            hidden_size=768,
            num_layers=12,
            num_heads=12,
            attention_types=[[["global", "local"], 6]],
        )
    )


def opt(**changes):
    return transformers.OPTForCausalLM(transformers.OPTConfig(**changes))


def t5(**sizes):
    return transformers.T5ForConditionalGeneration(transformers.T5Config(decoder_start_token_id=0, **sizes))


MODELS = {
    "openai-community/gpt2": gpt2,
    "distilbert/distilgpt2": lambda: gpt2(n_layer=6),
    "cerebras/Cerebras-GPT-111M": lambda: gpt2(
        n_embd=768, n_head=12, n_inner=3072, n_layer=10, n_positions=2048, activation_function="gelu",
        attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0,
    ),
    "EleutherAI/gpt-neo-125M": gpt_neo_125m,
    "facebook/opt-125m": opt,
    "facebook/opt-350m": lambda: opt(
        hidden_size=1024, ffn_dim=4096, num_hidden_layers=24, num_attention_heads=16,
        word_embed_proj_dim=512, do_layer_norm_before=False,
    ),
    "T5-small": lambda: t5(),
    "t5-base": lambda: t5(d_model=768, d_kv=64, d_ff=3072, num_layers=12, num_heads=12),
}
OPTIMIZERS = ("SGD", "Adam", "AdamW", "Adafactor")


def make_optimizer(name, parameters):
    if name == "Adafactor":
        return transformers.Adafactor(parameters, lr=1e-3, relative_step=False)
    return getattr(torch.optim, name)(parameters, lr=1e-3)


def batches(size, tokens, count):
    """Yields batches on the host, as a data loader does."""
    for _ in range(count):
        ids = torch.zeros(size, tokens, dtype=torch.int64)
        mask = torch.ones_like(ids)
        mask[: size // 3, 1:] = 0
        yield {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}


def train(model, size, tokens, optimizer_name, zero_grad_pos, iterations):
    device = torch.device("cuda")
    model.to(device)
    model.train()
    optimizer = make_optimizer(optimizer_name, model.parameters())
    for batch in batches(size, tokens, iterations):
        if zero_grad_pos == 0:
            optimizer.zero_grad()
        batch = {name: tensor.to(device) for name, tensor in batch.items()}
        outputs = model(**batch)
        if zero_grad_pos == 1:
            optimizer.zero_grad()
        outputs.loss.backward()
        optimizer.step()
        if zero_grad_pos == 2:
            optimizer.zero_grad()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=sorted(MODELS))
    parser.add_argument("batch", type=int)
    parser.add_argument("optimizer", choices=OPTIMIZERS)
    parser.add_argument("zero_grad_pos", type=int, choices=(0, 1, 2), nargs="?", default=2)
    parser.add_argument("--tokens", type=int, default=TOKENS)
    parser.add_argument("--iterations", type=int, default=4)
    args = parser.parse_args()
    train(MODELS[args.model](), args.batch, args.tokens, args.optimizer, args.zero_grad_pos, args.iterations)
    print("peak_allocated_bytes", torch.cuda.max_memory_allocated())
    print("peak_reserved_bytes", torch.cuda.max_memory_reserved())


if __name__ == "__main__":
    main()
