#!/usr/bin/env python3
"""A multilayer perceptron of GPUMemNet's measurements, rebuilt from its configuration.

    gpumemnet_mlp.py INPUTS BATCH ACTIVATION BATCH_NORM DROPOUT WIDTHS

WIDTHS is a comma-separated list of the layers' widths; the last is the number of classes. Each layer but the last is followed by
batch normalisation (BATCH_NORM is 1), the activation and dropout (DROPOUT is not 0); the last by softmax. fp32, Adam with learning
rate 1e-3, cross entropy on the softmax. Before training, one batch goes through without gradients, as the summary that the measured
program prints does. Prints PyTorch's own peaks at the end.
"""
import argparse

import torch
from torch import nn

from gpumemnet_cnn import ACTIVATIONS, train

MORE_ACTIVATIONS = {"identity": nn.Identity, "sigmoid": nn.Sigmoid}


def perceptron(inputs, widths, activation, batch_norm, dropout):
    layers = []
    for width in widths[:-1]:
        layers.append(nn.Linear(inputs, width))
        if batch_norm:
            layers.append(nn.BatchNorm1d(width))
        layers.append(activation())
        if dropout:
            layers.append(nn.Dropout(dropout))
        inputs = width
    return nn.Sequential(*layers, nn.Linear(inputs, widths[-1]), nn.Softmax(1))


def main():
    activations = dict(ACTIVATIONS, **MORE_ACTIVATIONS)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("inputs", type=int)
    parser.add_argument("batch", type=int)
    parser.add_argument("activation", choices=sorted(activations))
    parser.add_argument("batch_norm", type=int, choices=(0, 1))
    parser.add_argument("dropout", type=float)
    parser.add_argument("widths")
    parser.add_argument("--iterations", type=int, default=4)
    args = parser.parse_args()
    widths = [int(w) for w in args.widths.split(",")]
    model = perceptron(args.inputs, widths, activations[args.activation], args.batch_norm, args.dropout)
    train(model, (args.batch, args.inputs), widths[-1], args.iterations)
    print("peak_allocated_bytes", torch.cuda.max_memory_allocated())
    print("peak_reserved_bytes", torch.cuda.max_memory_reserved())


if __name__ == "__main__":
    main()
