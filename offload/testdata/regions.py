"""Random iterations over the regions of a plan, on a virtual card: no two blocks that live overlap, what deviates finds room elsewhere, and nothing stays behind.

The arguments are how many programs and how many iterations of each. The plan's regions hold what an iteration of a program that does not deviate takes.
"""
import random
import sys

import torch

MIB = 1 << 20
SIZES = [3 * MIB + 512, 5 * MIB, 12 * MIB, 20 * MIB, 33 * MIB, 64 * MIB, 96 * MIB]
LIVE_BYTES = 600 * MIB  # of an iteration that does not deviate


class Model:
    """What lives: address -> size, and the tensor that keeps it."""

    def __init__(self):
        self.live = {}
        self.bytes = self.most = 0

    def make(self, size, stream):
        with torch.cuda.stream(stream):
            block = torch.empty(size, dtype=torch.uint8, device="cuda")
        at = block.data_ptr()
        for other, (bytes, _) in self.live.items():
            assert at + size <= other or other + bytes <= at, "two blocks that live overlap"
        self.live[at] = size, block
        self.bytes += size
        self.most = max(self.most, self.bytes)
        return at

    def end(self, at, stream=None):
        size, block = self.live.pop(at)
        if stream is not None:
            block.record_stream(stream)
        self.bytes -= size


def reserved():
    return torch.cuda.memory_stats()["reserved_bytes.large_pool.current"]


def iteration(chance, sizes, deviates, streams):
    """Makes blocks and ends the oldest; where it deviates, others in another order, on another stream, and with an emptied cache."""
    model = Model()

    def happens(probability):
        return deviates and chance.random() < probability

    for i, size in enumerate(sizes):
        if happens(0.3):
            size = chance.choice(SIZES) + chance.randrange(MIB)
        while model.bytes + size > LIVE_BYTES:
            model.end(next(iter(model.live)))
        model.make(size, streams[happens(0.2)])
        if happens(0.05):
            torch.cuda.empty_cache()
        for _ in range(min(i % 3, len(model.live))):
            model.end(chance.choice(list(model.live)) if deviates else next(iter(model.live)), streams[1] if happens(0.2) else None)
    for at in list(model.live):
        model.end(at)


def main(programs, iterations):
    torch.cuda.init()
    regions, blocks = reserved(), 0
    assert regions >= LIVE_BYTES, "there are no regions"
    assert torch.cuda.max_memory_allocated() == 0, "the regions count as the program's"
    streams = torch.cuda.current_stream(), torch.cuda.Stream()
    for seed in range(programs):
        chance = random.Random(seed)
        sizes = [chance.choice(SIZES) for _ in range(40)]
        most = []
        for number in range(iterations):
            iteration(chance, sizes, seed % 2 == 1 and chance.random() < 0.5, streams)
            blocks += len(sizes)
            assert torch.cuda.memory_allocated() == 0, "a block is lost"
            most.append(reserved())
        if seed == 0:  # nothing has deviated yet
            assert set(most) == {regions}, most
        assert max(most[iterations // 2 :]) <= max(most[: iterations // 2]) + LIVE_BYTES, "it grows from iteration to iteration"
    torch.cuda.empty_cache()
    assert reserved() == 0, "something stays behind"
    print("%d programs of %d iterations, %d blocks, regions of %d MiB: no two overlap, nothing stays behind" % (programs, iterations, blocks, regions // MIB))


main(int(sys.argv[1]), int(sys.argv[2]))
