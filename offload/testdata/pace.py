"""What the layer makes of the times of a card: of the waits between its events, in ten of the first iterations. SLOWEST is what is allowed; the card is one of this file's own."""
import sys
import types

from gresize_offload import copies, pace

now = [0.0]


class Event:
    def __init__(self, enable_timing=False):
        assert enable_timing

    def record(self, stream):
        self.at = now[0]

    def query(self):
        return True

    def elapsed_time(self, other):
        return other.at - self.at


class Stream:
    def wait_event(self, event):
        now[0] += event  # an event is how long it takes until it has happened


cuda = types.SimpleNamespace(Event=Event, current_stream=Stream, is_current_stream_capturing=lambda: False)
torch = types.SimpleNamespace(cuda=cuda, ops=types.SimpleNamespace(aten=types.SimpleNamespace(copy_=types.SimpleNamespace(default=None))))

engine = copies.Cuda(torch)
stream = Stream()
for iteration in range(pace.SKIPPED + pace.MEASURED + 4):
    engine.begun()
    now[0] += 100  # it computes
    for _ in range(3):
        engine.wait(stream, float(sys.argv[1]) if iteration >= pace.SKIPPED else 1000.0)
print("slowdown", engine.slowdown(), len(engine.pace.waits), len(engine.pace.marks))
