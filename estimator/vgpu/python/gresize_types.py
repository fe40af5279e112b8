"""Names for annotations, read by the type checker alone: no module of the layers imports this one when it runs.

What is PyTorch's is not looked into: it is whatever the program has installed.
"""
from types import FrameType
from typing import Any, Dict, Hashable, Tuple

Torch = Any  # the module torch
Tensor = Any  # a torch.Tensor
Frames = Dict[Hashable, FrameType]  # running functions, by their code and by the name of their module
Place = Tuple[str, int]  # a line of a file
