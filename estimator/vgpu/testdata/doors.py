"""Ask one thing of the modelled card through every door, for each profile in argv, as one line of JSON each.

The question is asked in a forked child: a process reads its profile once."""
import ctypes
import json
import os
import subprocess
import sys

import torch


class Memory(ctypes.Structure):
    _fields_ = [(k, ctypes.c_ulonglong) for k in ("total", "free", "used")]


class Attributes(ctypes.Structure):
    _fields_ = [(k, ctypes.c_uint) for k in ("multiprocessors", "copy", "decoders", "encoders", "jpeg", "ofa", "gpu_slices", "compute_slices")] + [
        ("mib", ctypes.c_ulonglong)
    ]


def mig_mode(lib, handle):
    """The mode, or -1 where the card has none."""
    now, pending = ctypes.c_uint(9), ctypes.c_uint(9)
    return now.value if lib.nvmlDeviceGetMigMode(handle, ctypes.byref(now), ctypes.byref(pending)) == 0 else -1


def slices(lib, card):
    """What programs that know of slices ask about them, pynvml's order of calls."""
    found, most = [], ctypes.c_uint(99)
    lib.nvmlDeviceGetMaxMigDeviceCount(card, ctypes.byref(most))
    for i in range(most.value):
        slice_, again, parent = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        if lib.nvmlDeviceGetMigDeviceHandleByIndex(card, i, ctypes.byref(slice_)):
            continue
        name, uuid, memory, attributes, is_slice = ctypes.create_string_buffer(96), ctypes.create_string_buffer(96), Memory(), Attributes(), ctypes.c_uint()
        gi, ci = ctypes.c_uint(99), ctypes.c_uint(99)
        codes = [
            lib.nvmlDeviceGetName(slice_, name, 96),
            lib.nvmlDeviceGetUUID(slice_, uuid, 96),
            lib.nvmlDeviceGetMemoryInfo(slice_, ctypes.byref(memory)),
            lib.nvmlDeviceGetAttributes_v2(slice_, ctypes.byref(attributes)),
            lib.nvmlDeviceIsMigDeviceHandle(slice_, ctypes.byref(is_slice)),
            lib.nvmlDeviceGetGpuInstanceId(slice_, ctypes.byref(gi)),
            lib.nvmlDeviceGetComputeInstanceId(slice_, ctypes.byref(ci)),
            lib.nvmlDeviceGetHandleByUUID(uuid, ctypes.byref(again)),
            lib.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(slice_, ctypes.byref(parent)),
        ]
        same = again.value == slice_.value and parent.value == card.value and is_slice.value == 1 and not any(codes)
        found.append(
            dict(name=name.value.decode(), uuid=uuid.value.decode(), total=memory.total, mib=attributes.mib, multiprocessors=attributes.multiprocessors, same=same)
        )
    return found


def nvml():
    lib = ctypes.CDLL("libnvidia-ml.so.1")
    lib.nvmlInit_v2()
    count, cards = ctypes.c_uint(), []
    lib.nvmlDeviceGetCount_v2(ctypes.byref(count))
    driver = ctypes.create_string_buffer(96)
    lib.nvmlSystemGetDriverVersion(driver, 96)
    for i in range(count.value):
        handle, name, uuid, memory = ctypes.c_void_p(), ctypes.create_string_buffer(96), ctypes.create_string_buffer(96), Memory()
        major, minor, mode = ctypes.c_int(), ctypes.c_int(), ctypes.c_uint(9)
        lib.nvmlDeviceGetHandleByIndex_v2(i, ctypes.byref(handle))
        lib.nvmlDeviceGetName(handle, name, 96)
        lib.nvmlDeviceGetUUID(handle, uuid, 96)
        lib.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))
        lib.nvmlDeviceGetCudaComputeCapability(handle, ctypes.byref(major), ctypes.byref(minor))
        lib.nvmlDeviceGetComputeMode(handle, ctypes.byref(mode))
        cards.append(
            dict(
                name=name.value.decode(),
                uuid=uuid.value.decode(),
                total=memory.total,
                capability="%d.%d" % (major.value, minor.value),
                mode=mode.value,
                mig=mig_mode(lib, handle),
                slices=slices(lib, handle),
            )
        )
    return dict(driver=driver.value.decode(), cards=cards)


def smi(*args):
    return subprocess.run(["nvidia-smi", *args], stdout=subprocess.PIPE, check=True).stdout.decode().splitlines()


def ask():
    fields = "name,uuid,memory.total,compute_cap,driver_version,compute_mode,mig.mode.current"
    rows = [dict(zip(fields.split(","), line.split(", "))) for line in smi("--query-gpu=" + fields, "--format=csv,noheader,nounits")]
    cuda = []
    for i in range(torch.cuda.device_count()):
        p = torch.cuda.get_device_properties(i)
        free, total = torch.cuda.mem_get_info(i)
        cuda.append(
            dict(
                name=torch.cuda.get_device_name(i),
                uuid=str(p.uuid) if hasattr(p, "uuid") else "",
                total=p.total_memory,
                total_again=total,
                capability="%d.%d" % torch.cuda.get_device_capability(i),
                multiprocessors=p.multi_processor_count,
            )
        )
    with_unit = smi("--query-gpu=memory.total", "--format=csv")
    return dict(nvml=nvml(), smi=rows, list=smi("-L"), unit=with_unit, cuda=cuda, available=torch.cuda.is_available())


for case in sys.argv[1:]:
    profile, count, visible = case.split("|")
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        os.environ.update(GRESIZE_VGPU_PROFILE=profile, GRESIZE_VGPU_COUNT=count)
        if visible != "all":
            os.environ["CUDA_VISIBLE_DEVICES"] = visible
        print(json.dumps(ask()), flush=True)
        os._exit(0)
    if os.waitpid(pid, 0)[1]:
        sys.exit("%s failed" % case)
