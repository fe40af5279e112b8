"""Programs whose host memory is known: each takes memory in one way and trains a small layer on the card.

    host_memory_cases.py --prepare NAME FOLDER    make the files that one reads
    host_memory_cases.py NAME FOLDER    run one
    host_memory_cases.py --list         the names, what arithmetic says each takes above the first, and what for, one a line

Each holds its peak for a moment before the first step: whoever measures need not be quick, but for `spike`. With HOST_MEMORY_TRUTH set, pinned memory is touched
page by page, as the driver of a real card does it.
"""
import mmap
import os
import subprocess
import sys
import time

MIB = 1 << 20
CASES = {}


def case(mib, what):
    """A program with what it takes above the bare one by arithmetic, in MiB."""

    def add(function):
        CASES[function.__name__] = (function, mib, what)
        return function

    return add


def train(steps=8, rows=None):
    import torch

    layer = torch.nn.Linear(512, 512).cuda()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    rows = iter(rows) if rows is not None else None
    for _ in range(steps):
        batch = next(rows).cuda(non_blocking=True) if rows is not None else torch.ones(8, 512, device="cuda")
        layer(batch.reshape(-1, 512)).sum().backward()
        optimizer.step()
    del rows


def rest():
    time.sleep(1.0)


@case(0, "a layer of 512 x 512, nothing else")
def bare(folder):
    train(1)
    rest()
    train()


@case(400, "200 arrays of numpy, 2 MiB each")
def arrays(folder):
    import numpy

    kept = [numpy.full(2 * MIB, 7, dtype=numpy.uint8) for _ in range(200)]
    train(1)
    rest()
    train()
    return kept


@case(512, "a data set of 512 MiB in memory, read by four forked workers: the pages stay shared")
def workers(folder):
    import torch

    class Rows(torch.utils.data.Dataset):
        def __init__(self):
            self.rows = torch.ones(4096, 32768)  # 512 MiB

        def __len__(self):
            return len(self.rows)

        def __getitem__(self, i):
            return self.rows[i]

    loader = torch.utils.data.DataLoader(Rows(), batch_size=8, num_workers=4)
    batches = iter(loader)
    next(batches)
    rest()
    train(8, batches)


@case(None, "two million objects of Python, read by four forked workers: counting the references makes copies")
def objects(folder):
    import torch

    class Rows(torch.utils.data.Dataset):
        def __init__(self):
            self.rows = [str(i) for i in range(2000000)]

        def __len__(self):
            return 64

        def __getitem__(self, i):
            for row in self.rows:
                pass
            return torch.ones(512)

    batches = iter(torch.utils.data.DataLoader(Rows(), batch_size=4, num_workers=4))
    next(batches)
    time.sleep(3)
    train(8, batches)


@case(300 + 512, "a tensor of 300 MiB on the CPU, pinned: PyTorch takes 512 MiB for it")
def pinned(folder):
    import torch

    plain = torch.ones(300 * MIB // 4)
    fixed = plain.pin_memory()
    spare = pages(212 * MIB)
    train(1)
    rest()
    train()
    return plain, fixed, spare


@case(512, "a pinned buffer of 300 MiB that is not written: 512 MiB")
def buffer(folder):
    import torch

    fixed = torch.empty(300 * MIB, dtype=torch.uint8, pin_memory=True)
    spare = pages(512 * MIB)
    train(1)
    rest()
    train()
    return fixed, spare


@case(256, "256 MiB that nobody has touched, registered with cudaHostRegister")
def registered(folder):
    import torch

    torch.cuda.init()
    block = torch.empty(256 * MIB, dtype=torch.uint8)
    code = torch.cuda.cudart().cudaHostRegister(block.data_ptr(), 256 * MIB, 0)
    assert int(code) == 0
    spare = pages(256 * MIB)
    train(1)
    rest()
    train()
    return block, spare


@case(0, "a file of 600 MiB, mapped and read: the kernel can drop its pages")
def mapped(folder):
    import numpy

    rows = numpy.memmap(os.path.join(folder, "rows.bin"), dtype=numpy.uint8, mode="r")
    total = int(rows[::4096].sum())
    train(1)
    rest()
    train()
    return total


@case(0, "the same, written through the mapping")
def mapped_writing(folder):
    import numpy

    rows = numpy.memmap(os.path.join(folder, "rows.bin"), dtype=numpy.uint8, mode="r+")
    rows[::4096] = 3
    train(1)
    rest()
    train()
    return rows


@case(2 * 400, "a checkpoint of 400 MiB, read onto the CPU, and a model of as much")
def checkpoint(folder):
    import torch

    model = torch.nn.Module()
    model.w = torch.nn.Parameter(torch.ones(100 * MIB))
    state = torch.load(os.path.join(folder, "model.pt"), map_location="cpu", weights_only=True)
    model.load_state_dict(state)
    rest()
    del state, model
    train()


@case(None, "a tensor of 300 MiB that is put into shared memory, which two processes map: for a moment it is there twice")
def shared(folder):
    import torch
    import torch.multiprocessing as processes

    block = torch.ones(300 * MIB // 4).share_memory_()
    context = processes.get_context("fork")
    others = [context.Process(target=read_all, args=(block,)) for _ in range(2)]
    for other in others:
        other.start()
    time.sleep(2)
    for other in others:
        other.join()
    train()


def read_all(block):
    block.numpy().sum()  # PyTorch's own threads do not survive a fork
    time.sleep(1)


@case(300, "a file of 300 MiB in /dev/shm that nobody maps")
def shm_file(folder):
    path = "/dev/shm/gresize-host-memory-%d" % os.getpid()
    try:
        with open(path, "wb") as f:
            for _ in range(300):
                f.write(bytes(MIB))
        train(1)
        rest()
    finally:
        os.remove(path)
    train()


@case(400, "400 MiB that are there for a tenth of a second")
def spike(folder):
    train(1)
    rest()
    block = mmap.mmap(-1, 400 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    touch(block)
    block.close()
    train()


def touch(block):
    import numpy

    numpy.frombuffer(block, dtype=numpy.uint8)[::4096] = 1


@case(700, "200 MiB that eight forked processes share; when they have gone, 700 MiB")
def after_workers(folder):
    import numpy

    small = numpy.ones(200 * MIB, dtype=numpy.uint8)
    children = []
    for _ in range(8):
        pid = os.fork()
        if pid == 0:
            time.sleep(1.5)
            os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)
    large = numpy.ones(500 * MIB, dtype=numpy.uint8)
    train(1)
    rest()
    train()
    return small, large


@case(300, "a program beside the training that takes 300 MiB (and what an interpreter takes)")
def beside(folder):
    other = subprocess.Popen([sys.executable, "-S", "-c", "import sys; x = bytearray(b'x') * (300 << 20); sys.stdin.read()"], stdin=subprocess.PIPE)
    time.sleep(1.5)
    train(1)
    rest()
    other.kill()
    other.wait()
    train()


@case(None, "a loader with two spawned workers, which import PyTorch each")
def spawned(folder):
    import torch

    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(64, 512)), batch_size=4, num_workers=2, multiprocessing_context="spawn")
    batches = iter(loader)
    next(batches)
    rest()
    train(8, (b[0] for b in batches))


def pages(count):
    """Where the truth is measured, the pages of pinned memory that are not touched here and would be on a real card."""
    if not os.environ.get("HOST_MEMORY_TRUTH"):
        return None
    import numpy

    return numpy.ones(count, dtype=numpy.uint8)


def prepare(name, folder):
    if name == "checkpoint":
        import torch

        torch.save({"w": torch.ones(100 * MIB)}, os.path.join(folder, "model.pt"))
    if name.startswith("mapped"):
        with open(os.path.join(folder, "rows.bin"), "wb") as f:
            for _ in range(600):
                f.write(b"\1" * MIB)


if __name__ == "__main__":
    if sys.argv[1] == "--list":
        for name, (_, mib, what) in CASES.items():
            print("%s\t%s\t%s" % (name, "" if mib is None else mib, what))
    elif sys.argv[1] == "--prepare":
        prepare(*sys.argv[2:])
    else:
        CASES[sys.argv[1]][0](sys.argv[2])
