"""Notes what a plan is made from: which tensors autograd saves and takes back, in which order, and where in the allocator's history."""
from . import sequence

MOST_EVENTS = 400000

current = None  # the recorder of this process, for whoever writes the report


class Recorder(sequence.Sequence):
    def __init__(self, torch):
        super().__init__(torch)
        self.lines = []
        self.lost = 0

    def _place(self):
        """How many blocks the allocator has handed out and got back: where its history is now."""
        blocks = self.torch.cuda.memory_stats_as_nested_dict(self.torch.cuda.current_device()).get("allocation", {}).get("all", {})
        return [blocks.get("allocated", 0), blocks.get("freed", 0)]

    def _note(self, line):
        if len(self.lines) < MOST_EVENTS:
            self.lines.append(line)
        else:
            self.lost += 1

    def begun(self):
        self._note({"begin": self.iteration, "at": self._place()})

    def saved(self, item, tensor):
        storage = tensor.untyped_storage()
        self._note({"save": item.ordinal, "at": self._place(), "prefix": self.prefix, "address": storage.data_ptr(), "bytes": storage.nbytes(), "device": tensor.device.index})

    def taken(self, item):
        self._note({"take": item.ordinal, "of": item.iteration, "at": self._place()})
        return item.tensor

    def step(self, *_):
        super().step()
        if self.torch.cuda.is_initialized():
            self._note({"step": self.iteration, "at": self._place()})


def begin(torch):
    global current
    current = Recorder(torch)
    current.enter()


def lines():
    """What was noted, one value a line; the head says whether all of it."""
    yield {"saved": 1, "lost": current.lost}
    yield from current.lines
