"""Asks the installed PyTorch what it makes of allocator settings, and prints one JSON line per string. It runs on the virtual GPU:

    <environment of the virtual GPU> python make_conf_answers.py > conf_answers_VERSION.jsonl
"""
import json

import torch

STRINGS = [
    "", " ", "max_split_size_mb:32", "max_split_size_mb:20", "max_split_size_mb:21", "max_split_size_mb:19", "max_split_size_mb:100abc", "max_split_size_mb: 64 ",
    "max_split_size_mb", "max_split_size_mb:", "max_split_size_mb:abc", "max_split_size_mb=32", "max_split_size_mb:-1", "max_split_size_mb:+40", "max_split_size_mb:99999999999",
    "max_split_size_mb:99999999999999999999999", "max_split_size_mb:32,", "max_split_size_mb:32,,", ",", "max_split_size_mb:32:expandable_segments:True",
    "max_non_split_rounding_mb:20", "max_non_split_rounding_mb:40", "max_non_split_rounding_mb:", "garbage_collection_threshold:0.8", "garbage_collection_threshold:0",
    "garbage_collection_threshold:1", "garbage_collection_threshold:1.0", "garbage_collection_threshold:-3", "garbage_collection_threshold:x", "garbage_collection_threshold:0.5x",
    "garbage_collection_threshold:1e-1", "garbage_collection_threshold:nan", "garbage_collection_threshold:.5",
    "expandable_segments:True", "expandable_segments:False", "expandable_segments:true", "expandable_segments:1", "expandable_segments:", "expandable_segments",
    "expandable_segments:True,max_split_size_mb:64", "expandable_segments:True max_split_size_mb:64", "expandable_segments:True;max_split_size_mb:64",
    "roundup_power2_divisions:8", "roundup_power2_divisions:3", "roundup_power2_divisions:0", "roundup_power2_divisions:1", "roundup_power2_divisions:",
    "roundup_power2_divisions:[1:4,8:2,64:16,>:1]", "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]", "roundup_power2_divisions:[>:4]", "roundup_power2_divisions:[64:8]",
    "roundup_power2_divisions:[3:4]", "roundup_power2_divisions:[4:3]", "roundup_power2_divisions:[4:0,>:2]", "roundup_power2_divisions:[131072:4]", "roundup_power2_divisions:[]",
    "roundup_power2_divisions:[x:4]", "roundup_power2_divisions:[4:x]", "roundup_power2_divisions:[4;4]", "roundup_power2_divisions:[4:2,8:4],max_split_size_mb:64",
    "roundup_power2_divisions:[4:2 8:4]", "roundup_power2_divisions:[4:2,]",
    "backend:native", "backend:foo", "backend:", "foo:1", "foo", "MAX_SPLIT_SIZE_MB:32", "release_lock_on_cudamalloc:True", "release_lock_on_cudamalloc:yes",
    "pinned_use_cuda_host_register:True", "pinned_use_cuda_host_register:x", "pinned_num_register_threads:8", "pinned_num_register_threads:3", "pinned_num_register_threads:256",
    "pinned_use_background_threads:True", "pinned_use_background_threads:2", "graph_capture_record_stream_reuse:True", "per_process_memory_fraction:0.5", "per_process_memory_fraction:2",
    "pinned_reserve_segment_size_mb:0", "pinned_reserve_segment_size_mb:10", "large_segment_size_mb:40", "large_segment_size_mb:10", "large_segment_size_mb:12,max_split_size_mb:12",
    "max_split_size_mb:30,large_segment_size_mb:40", "throw_on_cudamalloc_oom:True", "roundup_bypass_threshold_mb:5", "max_split_size_mb:32,max_split_size_mb:64",
    "expandable_segments\t:True", "expandable_segments:\nTrue",
]

# Some options keep their value from call to call; a process that starts with a string has none of that.
RESET = "expandable_segments:False"
if int(torch.__version__.split(".")[1]) >= 11:
    RESET += ",large_segment_size_mb:20"
torch.cuda.init()
for text in STRINGS:
    answer = {"conf": text}
    try:
        torch.cuda.memory._set_allocator_settings(RESET)
        torch.cuda.memory._set_allocator_settings(text)
        settings = torch.cuda.memory._snapshot()["allocator_settings"]
        answer["settings"] = {k: settings[k] for k in ("max_split_size", "garbage_collection_threshold", "expandable_segments", "roundup_power2_divisions")}
    except Exception as e:
        answer["error"] = str(e).split("\n")[0]
    print(json.dumps(answer))
