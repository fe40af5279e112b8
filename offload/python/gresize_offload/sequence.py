"""The order in which autograd saves tensors and takes them back: the clock by which a plan is made and carried out.

A call of one of the two hooks is an event. An iteration begins with the first tensor that is saved when none is held, or after an optimizer's step; in it,
tensors and events are counted from 0. Identity is this place in the sequence, checked by what a tensor is: an address may be another tensor's a moment later.
"""
import threading
import zlib


class Saved:
    """What autograd holds in place of one tensor."""

    __slots__ = ("sequence", "iteration", "ordinal", "tensor", "held", "view", "guard", "version")

    def __init__(self, sequence, ordinal, tensor):
        self.sequence = sequence
        self.iteration = sequence.iteration
        self.ordinal = ordinal
        self.tensor = tensor  # None where the storage is held by held, which others may share
        self.held = None
        self.view = None
        self.guard = None
        self.version = 0

    def __del__(self):
        try:
            self.sequence.dropped(self)
        except Exception:  # at the end of the interpreter
            pass


def identity(before, tensor):
    """A number for a tensor, and for those before it in the iteration: equal in every process for the same program."""
    text = "%d %s %s %s %d" % (tensor.untyped_storage().nbytes(), tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset())
    return zlib.crc32(text.encode(), before)


class Sequence:
    """The hooks. What is done at an event is said by the methods that a subclass has: begun, saved, taken and dropped."""

    def __init__(self, torch, device_type="cuda"):
        self.torch = torch
        self.device_type = device_type
        self.lock = threading.RLock()
        self.iteration = 0
        self.live = 0  # saved tensors that are still held
        self.ordinal = 0
        self.event = 0
        self.prefix = 0
        self.stepped = False
        self.hooks = None
        self.types = (torch.Tensor, torch.nn.Parameter)

    # -- what a subclass does

    def begun(self):
        """A new iteration begins."""

    def arriving(self):
        """An event begins: self.event is its number."""

    def saved(self, item, tensor):
        """A tensor is saved: self.prefix names it and those before it."""

    def taken(self, item):
        """A tensor is wanted back; returns it."""
        return item.tensor

    def forgotten(self, item):
        """A saved tensor is no longer held."""

    # -- hooks

    def concerns(self, tensor):
        """Whether a tensor counts. Those of tracers (FakeTensor) and of other devices do not."""
        return type(tensor) in self.types and tensor.device.type == self.device_type and tensor.layout == self.torch.strided

    def pack(self, tensor):
        if not self.concerns(tensor):
            return tensor
        with self.lock, self.torch.no_grad():
            if self.live == 0 or self.stepped:
                self.stepped = False
                self.iteration += 1
                self.ordinal = self.event = self.prefix = 0
                self.begun()
            self.arriving()
            self.prefix = identity(self.prefix, tensor)
            tensor = tensor.detach()  # a result knows the node that saves it: nobody would ever be rid of the two
            item = Saved(self, self.ordinal, tensor)
            self.live += 1
            self.saved(item, tensor)
            self.ordinal += 1
            self.event += 1
            return item

    def unpack(self, item):
        if not isinstance(item, Saved):
            return item
        with self.lock, self.torch.no_grad():
            self.arriving()
            tensor = self.taken(item)
            self.event += 1
            return tensor

    def dropped(self, item):
        with self.lock:
            self.live -= 1
            self.forgotten(item)

    def updates(self, *_):
        """An optimizer is about to make a step."""

    def step(self, *_):
        self.stepped = True

    def enter(self):
        """Puts the hooks under everything that this thread does. The transformations of torch.func refuse to work beside hooks: they go without."""
        torch = self.torch
        graph = torch.autograd.graph
        self.hooks = graph.saved_tensors_hooks(self.pack, self.unpack)
        self.hooks.__enter__()
        disable = torch._C._autograd._saved_tensors_hooks_disable
        enable = torch._C._autograd._saved_tensors_hooks_enable
        main = threading.get_ident()
        stack = []

        def without(*args, **kwargs):
            if threading.get_ident() == main and not stack:
                self.hooks.__exit__()
                stack.append(True)
            return disable(*args, **kwargs)

        def again(*args, **kwargs):
            result = enable(*args, **kwargs)
            if threading.get_ident() == main and stack:
                stack.pop()
                self.hooks.__enter__()
            return result

        torch._C._autograd._saved_tensors_hooks_disable = without
        torch._C._autograd._saved_tensors_hooks_enable = again
        from torch.optim import optimizer

        optimizer.register_optimizer_step_pre_hook(self.updates)
        optimizer.register_optimizer_step_post_hook(self.step)
