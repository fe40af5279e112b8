"""The caching allocator with default settings in plain Python: the same algorithm as estimator/allocator, as an estimator would write it.

Reads "a BLOCK BYTES" and "f BLOCK" lines, replays them, prints the seconds taken by the replay and the peak of segments.
"""
import bisect
import sys
import time

MIB = 1 << 20


class Block:
    __slots__ = ("addr", "size", "prev", "next", "free", "small")

    def __init__(self, addr, size, small):
        self.addr, self.size, self.small = addr, size, small
        self.prev = self.next = None
        self.free = False


class Allocator:
    def __init__(self):
        self.pools = {True: [], False: []}  # (size, addr, block), sorted
        self.reserved = self.peak = self.allocated = self.peak_allocated = 0
        self.next_addr = 0x7F0000000000

    def malloc(self, request):
        size = max(512, (request + 511) // 512 * 512)
        small = size <= MIB
        pool = self.pools[small]
        i = bisect.bisect_left(pool, (size, 0))
        if i < len(pool):
            block = pool.pop(i)[2]
        else:
            segment = 2 * MIB if small else 20 * MIB if size < 10 * MIB else (size + 2 * MIB - 1) // (2 * MIB) * (2 * MIB)
            block = Block(self.next_addr, segment, small)
            self.next_addr += segment
            self.reserved += segment
            self.peak = max(self.peak, self.reserved)
        rest = block.size - size
        if rest >= 512 if small else rest > MIB:
            tail = Block(block.addr + size, rest, small)
            tail.free = True
            tail.prev, tail.next = block, block.next
            if tail.next is not None:
                tail.next.prev = tail
            block.next = tail
            block.size = size
            bisect.insort(pool, (tail.size, tail.addr, tail))
        block.free = False
        self.allocated += block.size
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        return block

    def release(self, block):
        pool = self.pools[block.small]
        self.allocated -= block.size
        for other in (block.prev, block.next):
            if other is None or not other.free:
                continue
            del pool[bisect.bisect_left(pool, (other.size, other.addr))]
            if other is block.prev:
                block.addr = other.addr
                block.prev = other.prev
                if block.prev is not None:
                    block.prev.next = block
            else:
                block.next = other.next
                if block.next is not None:
                    block.next.prev = block
            block.size += other.size
        block.free = True
        bisect.insort(pool, (block.size, block.addr, block))


def main():
    ops = []
    for line in sys.stdin:
        fields = line.split()
        ops.append((fields[0] == "a", int(fields[1]), int(fields[2]) if fields[0] == "a" else 0))
    rounds = int(sys.argv[1])
    a = Allocator()
    begin = time.perf_counter()
    for _ in range(rounds):
        live = {}
        for is_alloc, block, size in ops:
            if is_alloc:
                live[block] = a.malloc(size)
            else:
                a.release(live.pop(block))
        for block in live.values():
            a.release(block)
    seconds = time.perf_counter() - begin
    print("%.6f %d %d" % (seconds, a.peak, a.peak_allocated))


main()
