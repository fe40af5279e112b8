"""Runs a program with its plan and holds each copy against a model of streams: streams.py PROGRAM [ARGUMENT...].

Streams know of each other what events say: a clock for each stream, of what every other stream had done. It is fed by the calls that reach PyTorch's streams and
events, and by the copies themselves. Wrong is a copy that begins before what it reads was computed or written; memory of the card that is free, or in the program's
hands again, before a copy that reads or writes it has ended; a buffer of the host that is written while a copy reads it. STREAMS is the file of the report.
FAULT plants one.
"""
import json
import os
import runpy
import sys
import traceback

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from gresize_offload import copies, state, swapper

FAULT = os.environ.get("FAULT", "")


class Copy:
    """One under way. The card's storage is known by a weak reference: the model would keep it alive."""

    def __init__(self, stream, tick, storage, host, back):
        self.stream, self.tick, self.host, self.back = stream, tick, host, back
        self.name, self.weak = storage._cdata, StorageWeakRef(storage)

    def freed(self):
        if self.weak.expired():
            return True
        storage = torch.UntypedStorage._new_with_weak_ptr(self.weak.cdata)
        return storage is None or storage.nbytes() == 0


class Model:
    def __init__(self):
        self.clocks = {}  # stream -> stream -> how much of it came before
        self.events = {}  # event -> clock of the stream when it was recorded
        self.copies = []  # those that have not ended for the program's stream
        self.hosts = {}  # address of a buffer -> its last copies
        self.counts = {"out": 0, "back": 0, "taken": 0, "freed": 0, "events": 0, "waits": 0}
        self.wrong, self.said = [], set()  # each kind once, with the calls in which it was seen first
        self.program = None  # the program's stream

    def say(self, what):
        if what not in self.said:
            self.said.add(what)
            self.wrong.append("%s (%s)" % (what, " < ".join(f.name for f in traceback.extract_stack()[-7:-2][::-1])))
            self.write()

    def write(self):
        path = os.environ.get("STREAMS")
        if path:
            with open(path, "w") as f:
                json.dump(dict(self.counts, wrong=self.wrong), f)

    def clock(self, stream):
        return self.clocks.setdefault(stream, {stream: 0})

    def tick(self, stream):
        clock = self.clock(stream)
        clock[stream] += 1
        return clock[stream]

    def before(self, copy, stream):
        """Whether a copy has ended before what a stream does from now on."""
        return self.clock(stream).get(copy.stream, 0) >= copy.tick

    # -- what PyTorch is told

    def recorded(self, event, stream):
        self.tick(stream)
        self.events[id(event)] = event, dict(self.clock(stream))
        self.counts["events"] += 1

    def waited(self, event, stream):
        self.freed()  # what was free until now was free before
        found = self.events.get(id(event))
        if found is None:
            return
        clock = self.clock(stream)
        for other, tick in found[1].items():
            clock[other] = max(clock.get(other, 0), tick)
        self.counts["waits"] += 1

    def copied(self, to, source, stream):
        self.freed()
        back = to.device.type == "cuda"
        device, host = (to, source) if back else (source, to)
        program = self.program
        # What the program has done with the memory until now: computed it, or used it for something else.
        if self.clock(stream).get(program, 0) < self.clock(program)[program]:
            self.say("a copy begins before what the card has computed")
        for other in self.hosts.get(host.data_ptr(), ()):
            if (other.back != back or not back) and not self.clock(stream).get(other.stream, 0) >= other.tick:
                self.say("a buffer of the host is %s that a copy still %s" % (("read", "writes") if back else ("written", "uses")))
        copy = Copy(stream, self.tick(stream), device.untyped_storage(), host.data_ptr(), back)
        self.copies.append(copy)
        self.hosts[host.data_ptr()] = [c for c in self.hosts.get(host.data_ptr(), ()) if back and c.back != back] + [copy]
        self.counts["back" if back else "out"] += 1

    # -- what is held against it

    def freed(self):
        """What is free is another's next, on the program's stream."""
        program, left = self.program, []
        for copy in self.copies:
            if self.before(copy, program):
                if copy.freed():
                    self.counts["freed"] += 1
                continue
            if copy.freed():
                self.say("memory is free that a copy still %s" % ("writes" if copy.back else "reads"))
            else:
                left.append(copy)
        self.copies = left

    def begins(self):
        """The program has computed something since."""
        self.program = torch.cuda.current_stream().cuda_stream
        self.freed()
        self.tick(self.program)

    def given(self, storage):
        """The program reads and writes it from now on."""
        self.freed()
        for copy in self.copies:
            if copy.name == storage._cdata and not copy.freed():
                self.say("memory is in the program's hands that a copy still %s" % ("writes" if copy.back else "reads"))
        self.counts["taken"] += 1


model = Model()
def around(owner, name, before=None, after=None):
    real = getattr(owner, name)

    def wrapped(self, *args, **kwargs):
        if before is not None:
            before(self, *args, **kwargs)
        result = real(self, *args, **kwargs)
        if after is not None:
            after(result, self, *args, **kwargs)
        return result

    setattr(owner, name, wrapped)


def watch():
    event = torch.cuda.streams.Event
    around(event, "record", after=lambda _, e, stream=None: model.recorded(e, (stream or torch.cuda.current_stream()).cuda_stream))
    around(event, "wait", before=lambda e, stream=None: model.waited(e, (stream or torch.cuda.current_stream()).cuda_stream))

    if swapper.current is None:  # the run that is recorded
        return
    engine = swapper.current.engine  # there since torch was imported
    real = engine.copy

    def copy(to, source, late=False):
        model.copied(to, source, torch.cuda.current_stream().cuda_stream)
        return real(to, source, late)

    engine.copy = copy
    around(swapper.Swapper, "arriving", before=lambda *_: model.begins())
    around(swapper.Swapper, "begun", after=lambda *_: model.write())
    # Of what was never away, the copy to the host may go on: the program changes it only at the price of an error.
    around(swapper.Swapper, "taken", after=lambda _, layer, item: item.held is not None and item.held.back is not None and model.given(item.held.storage.untyped_storage()))

    were_away = []

    def wanted(layer, *_):
        if layer.away:
            model.begins()
            were_away[:] = layer.away

    def there(_, layer, *__):
        for one in were_away:
            if one.tensor.untyped_storage().nbytes() != one.move.bytes:
                model.say("the optimizer's state is not there")
            model.given(one.tensor.untyped_storage())
        were_away.clear()

    around(state.State, "wanted", before=wanted, after=there)
    around(state.State, "stepped", before=lambda *_: model.begins())


def plant():
    real = copies.Cuda.wait
    backs = set()

    def noted(result, *_):
        backs.add(id(result))
        kept.append(result)

    kept = []
    if FAULT == "no wait":
        copies.Cuda.wait = lambda *_: None
    elif FAULT in ("leaves unwaited", "comes unwaited"):
        around(copies.Cuda, "back", after=noted)
        copies.Cuda.wait = lambda self, stream, event: None if (id(event) in backs) == (FAULT == "comes unwaited") else real(self, stream, event)
    elif FAULT == "begins early":
        torch.cuda.streams.Stream.wait_stream = lambda *_: None
    elif FAULT:
        raise SystemExit("no fault %r" % FAULT)


if __name__ == "__main__":
    watch()
    plant()
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
