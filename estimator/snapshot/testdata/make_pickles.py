"""Writes small snapshots as Python's own pickle does, in every protocol from 2 to 5, with shared stack frames as PyTorch records them."""
import os
import pickle

HERE = os.path.dirname(os.path.abspath(__file__))


def snapshot():
    frames = [{"filename": "train.py", "line": 12, "name": "main"}, {"filename": "??", "line": 0, "name": "start"}]
    base = 0x7F0000000000
    big = 0x7F0000200000
    blocks = [
        {"address": base, "size": 512, "requested_size": 4, "state": "active_allocated", "frames": frames},
        {"address": base + 512, "size": 1024, "requested_size": 1000, "state": "active_pending_free", "frames": frames},
        {"address": base + 1536, "size": (2 << 20) - 1536, "requested_size": 0, "state": "inactive", "frames": []},
    ]

    def entry(action, addr, size, time):
        return {"action": action, "addr": addr, "size": size, "stream": 0, "time_us": time, "frames": frames, "compile_context": "N/A"}

    trace = [
        entry("segment_alloc", base, 2 << 20, 1_700_000_000_000_000),
        entry("alloc", base, 4, 1_700_000_000_000_001),
        entry("segment_alloc", big, 20 << 20, 1_700_000_000_000_002),
        entry("alloc", base + 512, 1000, 1_700_000_000_000_003),
        {"action": "oom", "device_free": 12345678, "size": 1 << 40, "stream": 0, "time_us": 5, "frames": list(frames)},
        entry("free_requested", base + 512, 1000, 1_700_000_000_000_004),
        entry("snapshot", 0, 0, 1_700_000_000_000_005),
    ]
    return {
        "segments": [
            {"device": 0, "address": base, "total_size": 2 << 20, "allocated_size": 512, "active_size": 1536, "requested_size": 1004, "stream": 0,
             "segment_type": "small", "segment_pool_id": (0, 0), "is_expandable": False, "frames": frames, "blocks": blocks},
            {"device": 0, "address": big, "total_size": 20 << 20, "allocated_size": 0, "active_size": 0, "requested_size": 0, "stream": 0,
             "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": False, "frames": [],
             "blocks": [{"address": big, "size": 20 << 20, "requested_size": 0, "state": "inactive", "frames": []}]},
        ],
        "device_traces": [trace, []],
        "allocator_settings": {
            "PYTORCH_CUDA_ALLOC_CONF": "garbage_collection_threshold:0.8", "max_split_size": -1, "garbage_collection_threshold": 0.8,
            "expandable_segments": False, "roundup_power2_divisions": {"1": 0, "2": 0},
        },
        "external_annotations": [{"name": "step", "stage": "START", "time_us": 4}],
    }


for protocol in range(2, 6):
    with open(os.path.join(HERE, "protocol%d.pickle" % protocol), "wb") as out:
        pickle.dump(snapshot(), out, protocol)
