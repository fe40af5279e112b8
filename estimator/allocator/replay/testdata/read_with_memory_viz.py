"""Reads a snapshot with PyTorch's own _memory_viz module, given by path: no PyTorch is imported."""
import importlib.util
import pickle
import pickletools
import sys

viz_path, snapshot_path = sys.argv[1:]
spec = importlib.util.spec_from_file_location("_memory_viz", viz_path)
viz = importlib.util.module_from_spec(spec)
spec.loader.exec_module(viz)

with open(snapshot_path, "rb") as f:
    data = f.read()
# What the JavaScript reader of the viewer knows.
KNOWN = set(
    """PROTO FRAME EMPTY_DICT EMPTY_LIST EMPTY_TUPLE MARK DICT LIST TUPLE TUPLE1 TUPLE2 TUPLE3 SETITEM SETITEMS APPEND APPENDS BININT BININT1 BININT2
    LONG1 BINFLOAT SHORT_BINUNICODE BINUNICODE NONE NEWTRUE NEWFALSE MEMOIZE BINPUT LONG_BINPUT BINGET LONG_BINGET STOP""".split()
)
unknown = {op.name for op, _, _ in pickletools.genops(data)} - KNOWN
assert not unknown, "opcodes that the viewer does not know: %s" % unknown
assert data[1] <= 4, "protocol %d" % data[1]
snapshot = pickle.loads(data)
print(viz.segsum(snapshot))
text = viz.trace(snapshot)
assert "entries" in text, text
assert viz.memory(snapshot, format_flamegraph=lambda lines: lines) is not None
assert viz.segments(snapshot, format_flamegraph=lambda lines: lines) is not None
viz.compare(snapshot["segments"], snapshot["segments"], format_flamegraph=lambda lines: lines)
assert "<html>" in viz.trace_plot(snapshot)
assert "<html>" in viz.segment_plot(snapshot)
# The viewer undoes the history from the final state: every block must be where the history left it.
live = {b["address"]: b for s in snapshot["segments"] for b in s["blocks"] if b["state"] != "inactive"}
for event in reversed(snapshot["device_traces"][0]):
    if event["action"] == "alloc":
        assert live.pop(event["addr"])["requested_size"] == event["size"]
    elif event["action"] == "free_completed":
        assert event["addr"] not in live
        live[event["addr"]] = {"requested_size": event["size"]}
assert not live, "blocks that no event explains: %s" % live
