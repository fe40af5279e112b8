#!/usr/bin/env python3
"""A TIMM model of GPUMemNet's measurements, trained as TIMM's own training script does by default.

    timm_train.py MODEL BATCH

Random weights, the model's default input, fp32, TIMM's prefetching loader (its own stream, images as bytes made floats on the GPU),
SGD with Nesterov momentum, label smoothing. cuDNN's benchmark mode is on, as it is there; --no-benchmark turns it off. Prints
PyTorch's own peaks at the end.
"""
import argparse

import timm
import timm.loss
import timm.optim
import torch
from timm.data.loader import PrefetchLoader


class Batches:
    """What a data loader yields to the prefetcher: images as bytes and labels, on the host."""

    def __init__(self, size, shape, classes, count):
        self.batch = torch.zeros((size,) + shape, dtype=torch.uint8), torch.zeros(size, dtype=torch.int64)
        self.count = count
        self.sampler = None
        self.dataset = None

    def __len__(self):
        return self.count

    def __iter__(self):
        for _ in range(self.count):
            yield self.batch


def train(model, batches, device):
    optimizer = timm.optim.create_optimizer_v2(model, opt="sgd", lr=0.05, momentum=0.9, weight_decay=2e-5)
    criterion = timm.loss.LabelSmoothingCrossEntropy(smoothing=0.1).to(device)
    model.train()
    optimizer.zero_grad()
    for inputs, labels in batches:
        loss = criterion(model(inputs), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("batch", type=int)
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--no-benchmark", dest="benchmark", action="store_false")
    args = parser.parse_args()
    torch.backends.cudnn.benchmark = args.benchmark
    torch.backends.cuda.matmul.allow_tf32 = True
    device = torch.device("cuda")
    model = timm.create_model(args.model)
    data = timm.data.resolve_data_config({}, model=model)
    model.to(device)
    batches = Batches(args.batch, tuple(data["input_size"]), model.num_classes, args.iterations)
    train(model, PrefetchLoader(batches, mean=data["mean"], std=data["std"], device=device), device)
    print("peak_allocated_bytes", torch.cuda.max_memory_allocated())
    print("peak_reserved_bytes", torch.cuda.max_memory_reserved())
    print("reserved_bytes", torch.cuda.memory_reserved())


if __name__ == "__main__":
    main()
