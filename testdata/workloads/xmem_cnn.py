#!/usr/bin/env python3
"""A CNN workload of xMem's published measurements, rebuilt from its description.

    xmem_cnn.py MODEL BATCH OPTIMIZER [ZERO_GRAD_POS]

torchvision's model with random weights on 3x86x86 images (CIFAR-10's size after xMem's resize; the pixels do not
matter), cross entropy, learning rate 1e-3, no momentum. MODEL and OPTIMIZER are spelled as in the published table.
ZERO_GRAD_POS says where the gradients are dropped: 0 at the start of the iteration, 1 just before backward,
2 at its end. Prints PyTorch's own peaks at the end.
"""
import argparse

import torch
import torchvision

IMAGE_EDGE = 86
LABELS = 10
MODELS = {
    "VGG11": lambda m: m.vgg11(weights=None),
    "VGG16": lambda m: m.vgg16(weights=None),
    "VGG19": lambda m: m.vgg19(weights=None),
    "ResNet50": lambda m: m.resnet50(weights=None),
    "ResNet101": lambda m: m.resnet101(weights=None),
    "ResNet152": lambda m: m.resnet152(weights=None),
    "MobileNetV2": lambda m: m.mobilenet_v2(weights=None),
    "MobeNetV3Small": lambda m: m.mobilenet_v3_small(weights=None, num_classes=LABELS),
    "MobeNetV3Large": lambda m: m.mobilenet_v3_large(weights=None, num_classes=LABELS),
    "MnasNet": lambda m: m.MNASNet(alpha=1.0, num_classes=LABELS),
    "ConvNeXtTiny": lambda m: m.convnext_tiny(weights=None),
    "ConvNeXtBase": lambda m: m.convnext_base(weights=None),
    "RegNetX400MF": lambda m: m.regnet_x_400mf(weights=None),
    "RegNetY400MF": lambda m: m.regnet_y_400mf(weights=None),
}
OPTIMIZERS = ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad")


def batches(size, count):
    """Yields batches on the host, as a data loader does."""
    for _ in range(count):
        yield torch.zeros(size, 3, IMAGE_EDGE, IMAGE_EDGE), torch.zeros(size, dtype=torch.int64)


def train(model, size, optimizer_name, zero_grad_pos, iterations):
    device = torch.device("cuda")
    model.to(device)
    model.train()
    optimizer = getattr(torch.optim, optimizer_name)(params=model.parameters(), lr=1e-3)
    criterion = torch.nn.CrossEntropyLoss()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=7, gamma=0.1)
    for inputs, labels in batches(size, iterations):
        if zero_grad_pos == 0:
            optimizer.zero_grad()
        inputs, labels = inputs.to(device), labels.to(device)
        outputs = model(inputs)
        loss = criterion(outputs, labels)
        if zero_grad_pos == 1:
            optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch.max(outputs, 1)
        scheduler.step()
        if zero_grad_pos == 2:
            optimizer.zero_grad()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=sorted(MODELS))
    parser.add_argument("batch", type=int)
    parser.add_argument("optimizer", choices=OPTIMIZERS)
    parser.add_argument("zero_grad_pos", type=int, choices=(0, 1, 2), nargs="?", default=0)
    parser.add_argument("--iterations", type=int, default=4)
    args = parser.parse_args()
    train(MODELS[args.model](torchvision.models), args.batch, args.optimizer, args.zero_grad_pos, args.iterations)
    print("peak_allocated_bytes", torch.cuda.max_memory_allocated())
    print("peak_reserved_bytes", torch.cuda.max_memory_reserved())


if __name__ == "__main__":
    main()
