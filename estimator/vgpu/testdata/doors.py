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
                mig=lib.nvmlDeviceGetMigMode(handle, ctypes.byref(ctypes.c_uint()), ctypes.byref(ctypes.c_uint())),
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
                uuid="GPU-" + str(p.uuid) if hasattr(p, "uuid") else "",
                total=p.total_memory,
                total_again=total,
                capability="%d.%d" % torch.cuda.get_device_capability(i),
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
