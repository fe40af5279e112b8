#!/usr/bin/env python3
"""A plain ConvNet of GPUMemNet's measurements, rebuilt from its configuration.

    gpumemnet_cnn.py CHANNELS CLASSES BATCH ACTIVATION BATCH_NORM DROPOUT LAYERS

LAYERS is a comma-separated list of FILTERS@EDGE, one for each 3x3 convolution with the edge of its square output; where
the edge shrinks, a 2x2 maximum stands before. Each convolution is followed by batch normalisation (BATCH_NORM is 1), the
activation and dropout (DROPOUT is not 0). Then the average of each plane, one linear layer, softmax. fp32, Adam with learning
rate 1e-3, cross entropy on the softmax. Before training, one batch goes through without gradients, as the summary that the
measured program prints does. Prints PyTorch's own peaks at the end.
"""
import argparse

import torch
from torch import nn

ACTIVATIONS = {
    "relu": nn.ReLU, "leaky_relu": nn.LeakyReLU, "prelu": nn.PReLU, "elu": nn.ELU, "selu": nn.SELU, "gelu": nn.GELU,
    "tanh": nn.Tanh, "swish": nn.SiLU, "softplus": nn.Softplus, "mish": nn.Mish,
}


class Unit(nn.Module):
    """One convolution with what follows it: a level of its own, as in the measured program."""

    def __init__(self, channels, filters, activation, batch_norm, dropout):
        super().__init__()
        layers = [nn.Conv2d(channels, filters, 3, 1, 1)]
        if batch_norm:
            layers.append(nn.BatchNorm2d(filters))
        layers.append(ACTIVATIONS[activation]())
        if dropout:
            layers.append(nn.Dropout(dropout))
        self.block = nn.Sequential(*layers)

    def forward(self, x):
        return self.block(x)


class ConvNet(nn.Module):
    def __init__(self, channels, classes, layers, activation, batch_norm, dropout):
        super().__init__()
        self.blocks = nn.ModuleList()
        edge = layers[0][1]
        for filters, next_edge in layers:
            if next_edge < edge:
                self.blocks.append(nn.MaxPool2d(kernel_size=2, stride=2))
                edge = next_edge
            self.blocks.append(Unit(channels, filters, activation, batch_norm, dropout))
            channels = filters
        self.average = nn.AdaptiveAvgPool2d((1, 1))
        self.classes = nn.Linear(channels, classes)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return torch.softmax(self.classes(torch.flatten(self.average(x), 1)), 1)


def train(model, shape, classes, iterations):
    device = torch.device("cuda")
    model.to(device)
    with torch.no_grad():
        model(torch.rand(*shape).to(device))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    model.train()
    for _ in range(iterations):
        inputs, labels = torch.zeros(*shape), torch.randint(0, classes, (shape[0],))
        inputs, labels = inputs.to(device), labels.to(device)
        optimizer.zero_grad()
        outputs = model(inputs)
        loss = criterion(outputs, labels)
        loss.backward()
        optimizer.step()
        loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("channels", type=int)
    parser.add_argument("classes", type=int)
    parser.add_argument("batch", type=int)
    parser.add_argument("activation", choices=sorted(ACTIVATIONS))
    parser.add_argument("batch_norm", type=int, choices=(0, 1))
    parser.add_argument("dropout", type=float)
    parser.add_argument("layers")
    parser.add_argument("--iterations", type=int, default=4)
    args = parser.parse_args()
    layers = [tuple(int(n) for n in layer.split("@")) for layer in args.layers.split(",")]
    model = ConvNet(args.channels, args.classes, layers, args.activation, args.batch_norm, args.dropout)
    train(model, (args.batch, args.channels, layers[0][1], layers[0][1]), args.classes, args.iterations)
    print("peak_allocated_bytes", torch.cuda.max_memory_allocated())
    print("peak_reserved_bytes", torch.cuda.max_memory_reserved())


if __name__ == "__main__":
    main()
