"""Leads a program that asks for a GPU to the CPU, where its arithmetic is done for true.

The replaced libraries go on answering what the program asks about its card: its name, its memory, whether it is there. Only tensors are kept off
it: every call into PyTorch that names the device "cuda" is made for "cpu". What cannot be led there, such as a tensor type of CUDA's own, lands on the
virtual card, and its bytes tell so afterwards.
"""
from __future__ import annotations

import functools
import threading
import weakref

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Any

    from gresize_types import Tensor, Torch

# A copy to the card is a copy on the CPU under this name, so that a profile shows when the card would have taken memory.
TO_DEVICE = "gresize.to_device"
# Behind it stands, in hexadecimal, the address of what the program has on the card at that moment.
ON_DEVICE = "gresize.on_device "
LEAST_KEPT_BYTES = 64 << 10
_MARK = "_gresize_on_device"


def start(torch: Torch) -> _State:
    """Arm the redirection in this thread and in those that it starts."""
    state = _State(torch)
    mode = _mode(torch, state)
    mode.__enter__()
    _in_new_threads(mode)
    _hook_modules(torch, state)
    _hook_contexts(torch, state)
    _hook_autocast(torch, state)
    _hook_scaler(torch, state)
    _hook_compile(torch, state)
    _hook_loaders(torch)
    return state


class _State:
    def __init__(self, torch):
        self.torch = torch
        self.local = threading.local()
        self.replaced = set()  # what was not done as on a GPU
        self.moved = 0  # tensors that were copied
        self.recording = False
        self.kept = weakref.WeakValueDictionary()  # what is on the card before anything is recorded, by its id

    def moving_module(self):
        return getattr(self.local, "modules", 0) > 0

    def mark(self, value):
        """The tensors of value are on the card."""
        if isinstance(value, self.torch.Tensor):
            value.__dict__[_MARK] = True
            self._note(value)
        elif isinstance(value, (list, tuple)):
            for one in value:
                self.mark(one)

    def _note(self, tensor):
        """A profile alone does not tell what is made on the card from what is made on the host, nor what was there before it."""
        if tensor.grad_fn is not None or tensor.layout != self.torch.strided or tensor.numel() * tensor.element_size() < LEAST_KEPT_BYTES or getattr(self.local, "stepping", False):
            return
        if self.recording:
            with self.torch.autograd.profiler.record_function(ON_DEVICE + "%x" % storage_of(tensor).data_ptr()):
                pass
        else:
            self.kept[id(tensor)] = tensor

    def there(self):
        """The bytes of what is on the card, by address."""
        storages = [storage_of(tensor) for tensor in list(self.kept.values())]
        return {storage.data_ptr(): storage.nbytes() for storage in storages}


def storage_of(tensor: Tensor) -> Any:
    return tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()


def _mode(torch, state):
    base = torch.overrides.TorchFunctionMode
    tensor_base = torch._C._TensorBase if hasattr(torch._C, "_TensorBase") else torch._C.TensorBase
    device_class, tensor_class = torch.device, torch.Tensor
    move_to, move_cuda = tensor_base.to, tensor_base.cuda
    record_stream, pin = tensor_base.record_stream, tensor_base.pin_memory
    cpu = device_class("cpu")
    makers = (device_class, getattr(torch._C._nn, "_parse_to", None))

    def is_cuda(value):
        if isinstance(value, str):
            return value == "cuda" or value.startswith("cuda:")
        return isinstance(value, device_class) and value.type == "cuda"

    mark = state.mark

    def marked(values):
        for value in values:
            if isinstance(value, tensor_class):
                if value.__dict__.get(_MARK) or value.grad_fn is not None or isinstance(value, torch.nn.Parameter):
                    return True
            elif isinstance(value, (list, tuple)) and marked(value):
                return True
        return False

    def copied(func, args, kwargs):
        """The tensor as it would be on the card: a copy, unless it is there."""
        source = args[0]
        there = isinstance(source, torch.nn.Parameter) or marked((source,)) or state.moving_module()
        if func is move_cuda:
            result = source if there else move_to(source, cpu)
        else:
            result = func(*args, **kwargs)
            there = there or result is not source  # a change of its type was a copy already
        if not there:
            state.moved += 1
            if not state.recording:
                result = source.detach().clone() if not source.requires_grad else source.clone()
            else:
                with torch.autograd.profiler.record_function(TO_DEVICE):
                    result = source.detach().clone() if not source.requires_grad else source.clone()
        mark(result)
        return result

    class Redirect(base):  # type: ignore
        def __torch_function__(self, func, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            if func in makers:
                return func(*args, **kwargs)
            if func is record_stream:
                state.replaced.add("record_stream")
                return None
            if func is pin:
                return args[0]
            to_card = func is move_cuda
            if kwargs.get("device") is not None and is_cuda(kwargs["device"]):
                kwargs = dict(kwargs, device=cpu)
                to_card = True
            if any(is_cuda(value) for value in args):
                args = tuple(cpu if is_cuda(value) else value for value in args)
                to_card = True
            elif func is move_to and not to_card and len(args) > 1 and isinstance(args[1], tensor_class):
                to_card = marked(args[1:2])  # to where another tensor is
            if to_card and (func is move_to or func is move_cuda):
                return copied(func, args, kwargs)
            result = func(*args, **kwargs)
            if to_card or marked(args):
                mark(result)
            return result

    return Redirect()


def _in_new_threads(mode):
    """A mode belongs to its thread; a program's own threads need it too."""
    original = threading.Thread.run

    @functools.wraps(original)
    def run(self):
        try:
            mode.__enter__()
        except Exception:
            pass
        return original(self)

    threading.Thread.run = run  # type: ignore


def _hook_modules(torch, state):
    """The weights of a module are known from the module: they are not copied."""
    for name in ("to", "cuda"):
        original = getattr(torch.nn.Module, name)

        @functools.wraps(original)
        def move(self, *args, _original=original, **kwargs):
            state.local.modules = getattr(state.local, "modules", 0) + 1
            try:
                return _original(self, *args, **kwargs)
            finally:
                state.local.modules -= 1

        setattr(torch.nn.Module, name, move)


def _hook_contexts(torch, state):
    """`with torch.device("cuda")` and torch.set_default_device stand behind every other mode."""
    context = getattr(getattr(torch.utils, "_device", None), "DeviceContext", None)
    if context is None:
        return
    original, make = context.__init__, context.__torch_function__

    @functools.wraps(original)
    def init(self, device):
        self._gresize_card = str(device).startswith("cuda")
        original(self, "cpu" if self._gresize_card else device)

    @functools.wraps(make)
    def made(self, func, types, args=(), kwargs=None):
        result = make(self, func, types, args, kwargs)
        if self._gresize_card and func in torch.utils._device._device_constructors() and not (kwargs or {}).get("device"):
            state.mark(result)
        return result

    context.__init__, context.__torch_function__ = init, made


def _hook_autocast(torch, state):
    original = torch.autocast.__init__

    @functools.wraps(original)
    def init(self, device_type, *args, **kwargs):
        if str(device_type).startswith("cuda"):
            state.replaced.add("autocast")
            device_type = "cpu"
            # Half precision of either kind has two bytes; the CPU knows bfloat16 in every release.
            if args and args[0] is torch.float16:
                args = (torch.bfloat16,) + args[1:]
            elif kwargs.get("dtype") is torch.float16:
                kwargs["dtype"] = torch.bfloat16
        original(self, device_type, *args, **kwargs)

    torch.autocast.__init__ = init


def _hook_scaler(torch, state):
    """Losses are not scaled: three numbers on the card, and checks that the CPU has in newer releases only."""
    places = [getattr(torch.amp, "grad_scaler", None), getattr(torch.cuda.amp, "grad_scaler", None)]
    for place in places:
        scaler = getattr(place, "GradScaler", None)
        if scaler is None or getattr(scaler, "_gresize", False):
            continue
        original = scaler.__init__

        @functools.wraps(original)
        def init(self, *args, _original=original, **kwargs):
            _original(self, *args, **kwargs)
            self._enabled = False

        scaler.__init__ = init
        scaler._gresize = True


def _hook_compile(torch, state):
    original = getattr(torch, "compile", None)
    if original is None:
        return

    @functools.wraps(original)
    def compile_(model=None, **kwargs):
        state.replaced.add("compile")
        return model if model is not None else (lambda function: function)

    torch.compile = compile_


def _hook_loaders(torch):
    """Pinned memory is a card's matter."""
    loader = torch.utils.data.DataLoader
    original = loader.__init__

    @functools.wraps(original)
    def init(self, *args, **kwargs):
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        original(self, *args, **kwargs)

    loader.__init__ = init
