"""Several ranks: which of them are run, how they find each other, and how they end together.

A job of few ranks runs whole: every rank is a process, launched and joined by the program's own launcher, and nothing here but the
exchange of objects and the common end is changed. A job of more ranks than GRESIZE_VGPU_MOST_RANKS is run by its first and its last rank
alone: the others are never started, the world keeps its size, and the two get a store that never waits for who is not there. Their
collectives run in PyTorch's own ProcessGroupNCCL over the replaced library, because its buffers and streams are what is to be seen.
"""
from __future__ import annotations

import functools
import hashlib
import os
import pickle
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Any, Iterable

    from gresize_types import Torch

MOST_RANKS = 4
# A rank that has seen enough waits for the others this long, and the others go on for this long without it.
GRACE_SECONDS = 10.0
# How long a store waits for a key whose writer may not be run.
STORE_SECONDS = 5.0
LAUNCHERS = ("torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate", "deepspeed", "lightning")


def _integer(name, fallback=None):
    try:
        return int(os.environ[name])
    except (KeyError, ValueError):
        return fallback


def most_ranks() -> int:
    return max(_integer("GRESIZE_VGPU_MOST_RANKS", MOST_RANKS), 1)


def chosen(world: int) -> list[int]:
    """The ranks of a job that are run: all, or the first and the last. Sharding and the stages of a pipeline are largest at the ends."""
    if world <= most_ranks():
        return list(range(world))
    return [0, world - 1] if most_ranks() > 1 else [0]


def directory() -> str | None:
    reports = os.environ.get("GRESIZE_VGPU_REPORT_DIR")
    if not reports:
        return None
    path = os.path.join(reports, "ranks")
    os.makedirs(path, mode=0o700, exist_ok=True)
    return path


def _place(name):
    folder = directory()
    if folder is None:
        raise FileNotFoundError("no folder of reports")
    return os.path.join(folder, name)


# -- the start of a process


def at_start() -> None:
    """Called in every interpreter of a probe: a rank that is not one of the chosen ends here, before it costs anything."""
    world = _integer("WORLD_SIZE")
    rank = _integer("RANK", _integer("LOCAL_RANK"))
    if world is None or rank is None or _is_launcher():
        return
    if "GRESIZE_VGPU_LAUNCHED" in os.environ:
        _become(os.environ.pop("GRESIZE_VGPU_LAUNCHED"), rank)
    elif rank not in chosen(world):
        os._exit(0)


def _is_launcher():
    try:
        with open("/proc/self/cmdline", "rb") as f:
            words = f.read(4096).decode("utf-8", "replace").split("\0")[:4]
    except OSError:
        return False
    return any(w == name or os.path.basename(w) == name or w.startswith(name + ".") for w in words for name in LAUNCHERS)


def _become(launched, index):
    """Take the place in the whole job that stands behind one of the processes that were started for it."""
    nodes, each = (int(n) for n in launched.split("x"))
    world = nodes * each
    rank = chosen(world)[index]
    for name, value in (
        ("RANK", rank),
        ("WORLD_SIZE", world),
        ("LOCAL_RANK", rank % each),
        ("LOCAL_WORLD_SIZE", each),
        ("GROUP_RANK", rank // each),
        ("GROUP_WORLD_SIZE", nodes),
        ("ROLE_RANK", rank),
        ("ROLE_WORLD_SIZE", world),
    ):
        os.environ[name] = str(value)


def hook_launcher(api: Any) -> None:
    """torch.distributed.launcher.api: one agent starts the chosen ranks of all nodes, and waits for no other node's agent."""
    original = api.launch_agent

    @functools.wraps(original)
    def launch_agent(config, entrypoint, args):
        nodes, each = config.max_nodes, config.nproc_per_node
        if nodes == 1 and each <= most_ranks():
            return original(config, entrypoint, args)
        if not _first_here("agent-%s" % hashlib.sha256(str(config.run_id).encode()).hexdigest()[:16]):
            return {}
        config.min_nodes = config.max_nodes = 1
        config.nproc_per_node = len(chosen(nodes * each))
        config.rdzv_backend, config.rdzv_endpoint, config.rdzv_configs = "c10d", "localhost:0", {"timeout": 900}
        os.environ["GRESIZE_VGPU_LAUNCHED"] = "%dx%d" % (nodes, each)
        try:
            return original(config, entrypoint, args)
        finally:
            del os.environ["GRESIZE_VGPU_LAUNCHED"]

    api.launch_agent = launch_agent


_held = []


def _first_here(name):
    """Whether this is the only process under this name just now; it stays so until this process ends."""
    import fcntl

    f = open(_place(name), "a")
    try:
        fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        f.close()
        return False
    _held.append(f)
    return True


def hook_spawn(module: Any) -> None:
    """torch.multiprocessing.spawn: the processes of ranks that are not run end at once."""
    original = module.start_processes

    @functools.wraps(original)
    def start_processes(fn, args=(), nprocs=1, *more, **named):
        if nprocs <= most_ranks():
            return original(fn, args, nprocs, *more, **named)
        whole = module.multiprocessing
        module.multiprocessing = _SomeProcesses(whole, chosen(nprocs))
        try:
            return original(fn, args, nprocs, *more, **named)
        finally:
            module.multiprocessing = whole

    module.start_processes = start_processes
    package: Any = sys.modules.get("torch.multiprocessing")
    if getattr(package, "start_processes", None) is original:
        package.start_processes = start_processes


class _SomeProcesses:
    """The multiprocessing module as start_processes sees it: every process but the chosen is an empty one."""

    def __init__(self, whole, keep, context=None):
        self._whole, self._keep, self._context = whole, keep, context

    def __getattr__(self, name):
        return getattr(self._context or self._whole, name)

    def get_context(self, method=None):
        return _SomeProcesses(self._whole, self._keep, self._whole.get_context(method))

    def Process(self, target=None, args=(), **named):  # noqa: N802, the name of what it stands for
        if args[1] in self._keep:
            return self._context.Process(target=target, args=args, **named)
        return self._whole.get_context("fork").Process(target=os._exit, args=(0,), **named)


# -- the world


class World:
    """What one process knows of the ranks around it."""

    rank: Any = None  # a number, once it is known
    size = 1
    some = False  # not all ranks are run
    store = None
    groups = {}  # name of a process group -> its ranks in the world

    @classmethod
    def present(cls, ranks: Iterable[int]) -> list[bool]:
        return [r in chosen(cls.size) for r in ranks]


def _nccl():
    import ctypes

    try:
        return ctypes.CDLL("libnccl.so.2", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return None


def _tell_present(ranks):
    """The next communicator on this thread is that of these ranks."""
    library = _nccl()
    if library is not None:
        present = bytes(bytearray(World.present(ranks)))
        library.gresize_nccl_present(len(ranks), present)


def _make_store_class(torch):
    base = torch.distributed.Store

    class SomeRanksStore(base):  # type: ignore
        """A store of the ranks that are run. What only another would have written is answered at once."""

        def __init__(self, backing):
            super().__init__()
            self.backing = backing

        def _group_of(self, key):
            parts = [p for p in key.split("/") if p]
            for part in reversed(parts[:-1]):  # the store of a group is made within that of the world
                if part in World.groups:
                    ranks = World.groups[part]
                    break
            else:
                return None
            pair = parts[-1].split(":")
            if len(pair) == 2 and all(p.isdigit() and int(p) < len(ranks) for p in pair):
                return [ranks[int(p)] for p in pair]
            return ranks if parts[-1].isdigit() else None

        def set(self, key, value):
            ranks = self._group_of(key)
            if ranks:
                _tell_present(ranks)
            self.backing.set(key, value)

        def get(self, key):
            ranks = self._group_of(key)
            if ranks:
                _tell_present(ranks)
                if not World.present(ranks[:1])[0]:  # who makes the name of this communicator is not run
                    return hashlib.sha512(key.encode()).hexdigest()[:128].encode()
            elif not self._comes(key):
                return b"0"
            return self.backing.get(key)

        def _comes(self, key):
            until = time.monotonic() + STORE_SECONDS
            while not self.backing.check([key]):
                if time.monotonic() > until:
                    return False
                time.sleep(0.01)
            return True

        def wait(self, keys, timeout=None):
            for key in keys:
                self._comes(key)

        def check(self, keys):
            return self.backing.check(keys)

        def add(self, key, amount):
            return self.backing.add(key, amount)

        def compare_set(self, key, expected, desired):
            return self.backing.compare_set(key, expected, desired)

        def delete_key(self, key):
            return self.backing.delete_key(key)

        def num_keys(self):
            return self.backing.num_keys()

        def clone(self):
            return self

    return SomeRanksStore


def hook_distributed(torch: Torch, watch: Any) -> None:
    """torch.distributed: joining a world, object collectives, and the end."""
    module = sys.modules.get("torch.distributed.distributed_c10d")
    if module is None:
        return
    _hook_init(torch, module, watch)
    _hook_groups(module)
    _hook_objects(torch, module)


def _replace(module, name, new):
    """Put a function in the place of another, and under its name in every module of the package that took it over at its import."""
    original = getattr(module, name)
    for place, other in list(sys.modules.items()):
        if place.startswith("torch.distributed") and getattr(other, "__dict__", {}).get(name) is original:
            setattr(other, name, new)


def _hook_init(torch, module, watch):
    original = module.init_process_group
    calls = [0]

    @functools.wraps(original)
    def init_process_group(backend=None, init_method=None, timeout=None, world_size=-1, rank=-1, store=None, *args, **named):
        size = world_size if world_size is not None and world_size > 0 else _integer("WORLD_SIZE", -1)
        mine = rank if rank is not None and rank >= 0 else _integer("RANK", -1)
        calls[0] += 1
        if backend == "fake" or size <= most_ranks() or mine < 0:
            if timeout is not None:
                named["timeout"] = timeout
            result = original(backend, init_method, *args, world_size=world_size, rank=rank, store=store, **named)
            _joined(module, watch)
            return result
        if mine not in chosen(size):
            watch.leave_unseen()
        World.rank, World.size, World.some = mine, size, True
        World.groups = {}
        os.environ["GRESIZE_VGPU_SOME_RANKS"] = "1"
        os.environ["TORCH_NCCL_ENABLE_MONITORING"] = "0"
        named.pop("device_id", None)  # an eager start of NCCL would ask ranks that are not there; it takes the same memory
        if timeout is not None:
            named["timeout"] = timeout
        if isinstance(init_method, str) and init_method.startswith("file:"):
            name = init_method
        else:
            name = "%s:%s" % (os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT"))
        # One script may start one job after the other under the same address.
        launch = os.getppid() if "TORCHELASTIC_RUN_ID" in os.environ else os.environ.get("GRESIZE_VGPU_LAUNCH")
        name = hashlib.sha256(("%s %s %d" % (name, launch, calls[0])).encode()).hexdigest()[:16]
        backing = torch.distributed.FileStore(_place("store-" + name), -1)
        World.store = _make_store_class(torch)(backing)  # kept: the C++ side does not hold the Python half of it
        result = original(backend, *args, world_size=size, rank=mine, store=World.store, **named)
        _joined(module, watch)
        return result

    _replace(module, "init_process_group", init_process_group)


def _joined(module, watch):
    join(module.get_rank(), module.get_world_size())
    watch.rank, watch.world_size = World.rank, World.size


def join(rank: int, size: int) -> None:
    """This process is one rank of so many: from now on the others wait for its end."""
    World.rank, World.size = rank, size
    if size > 1:
        _write("live-%d" % os.getpid(), str(rank))


def _hook_groups(module):
    import inspect

    original_helper = module._new_process_group_helper
    signature = inspect.signature(original_helper)
    original_barrier = module._store_based_barrier
    gloo = getattr(module, "ProcessGroupGloo", None)

    @functools.wraps(original_helper)
    def helper(*args, **named):
        if World.some:
            bound = signature.bind(*args, **named).arguments
            ranks = list(bound.get("global_ranks_in_group") or range(World.size))
            name = bound.get("group_name")
            World.groups[str(name)] = ranks
        return original_helper(*args, **named)

    @functools.wraps(original_barrier)
    def barrier(*args, **named):
        return None if World.some else original_barrier(*args, **named)

    _replace(module, "_new_process_group_helper", helper)
    _replace(module, "_store_based_barrier", barrier)
    if gloo is not None:
        _replace(module, "ProcessGroupGloo", _local_gloo(gloo))


def _local_gloo(gloo):
    """Gloo connects every rank with every other, so it cannot be had where some are not there: PyTorch's fake group stands in on the CPU."""

    class Meta(type):
        def __call__(cls, store, rank, size, *args, **named):
            if not World.some:
                return gloo(store, rank, size, *args, **named)
            # The module is needed for more than the name: it registers what the class is known by.
            import torch.testing._internal.distributed.fake_pg  # noqa: F401
            from torch._C._distributed_c10d import FakeProcessGroup

            make = getattr(FakeProcessGroup, "_create_internal", FakeProcessGroup)
            return make(rank, size)

        def __instancecheck__(cls, value):
            return isinstance(value, gloo)

        def __getattr__(cls, name):
            return getattr(gloo, name)

    return Meta("ProcessGroupGloo", (), {})


# -- objects


class Objects:
    """Carries pickled objects between ranks by the store of the world, in the order of the calls of each group."""

    counts = {}

    def __init__(self, module: Any, group: Any) -> None:
        self.module = module
        self.group = group if group is not None else module._get_default_group()
        self.ranks = module.get_process_group_ranks(self.group)
        self.name = self.module._world.pg_names.get(self.group, "0")
        self.store = module._get_default_store()
        self.me = World.rank

    def applies(self) -> bool:
        """Whether the objects would go through a GPU, or to ranks that are not there."""
        return World.some or "nccl" in str(self.module.get_backend(self.group))

    def _key(self, kind, *who):
        count = self.counts[(self.name, kind) + who] = self.counts.get((self.name, kind) + who, 0) + 1
        return "gresize/%s/%s/%s/%d/" % (self.name, kind, "-".join(str(w) for w in who), count)

    def there(self, rank: int) -> bool:
        return not World.some or World.present([rank])[0]

    def gather(self, obj: Any, wanted: bool) -> list[Any]:
        """What each rank of the group gave; a rank that is not run gives what the first that is gave."""
        key = self._key("gather")
        data = pickle.dumps(obj)
        self.store.set(key + "by%d" % self.me, data)
        self._spend(len(data), len(self.ranks))
        if not wanted:
            return []
        stand_in = next((r for r in self.ranks if self.there(r)), self.me)
        return [pickle.loads(self.store.get(key + "by%d" % (r if self.there(r) else stand_in))) for r in self.ranks]

    def send(self, kind: str, who: Any, obj: Any) -> None:
        data = pickle.dumps(obj)
        self.store.set(self._key(kind, *who) + "sent", data)
        if World.some and kind == "send" and self.me == 0:
            self.store.set(self._key("stand-in"), data)
        self._spend(len(data), 1)

    def receive(self, kind: str, who: Any, source: int, otherwise: Any) -> Any:
        key = self._key(kind, *who) + "sent"
        if not self.there(source):
            return self._stand_in(otherwise) if kind == "send" else otherwise
        data = self.store.get(key)
        self._spend(len(data), 1)
        return pickle.loads(data)

    def _stand_in(self, otherwise):
        """What a rank that is not run would send: the stages of a pipeline are alike, so it is what the first rank sends on."""
        key = self._key("stand-in")
        until = time.monotonic() + GRACE_SECONDS
        while not self.store.check([key]):
            if time.monotonic() > until:
                return otherwise
            time.sleep(0.01)
        return pickle.loads(self.store.get(key))

    def _spend(self, size, ranks):
        """Take and give back the device memory that PyTorch's own way takes."""
        torch = sys.modules["torch"]
        if "nccl" in str(self.module.get_backend(self.group)):
            kept = [torch.empty(n, dtype=torch.uint8, device="cuda") for n in (size, 8, 8 * ranks, size * ranks)]
            del kept


def _hook_objects(torch, module):
    def replace(name, make):
        original = getattr(module, name, None)
        if original is not None:
            _replace(module, name, functools.wraps(original)(make(original)))

    def in_group(module, group, rank, group_rank, fallback=None):
        """The world's number of a rank that was named by either."""
        if group_rank is not None:
            return module.get_global_rank(group or module._get_default_group(), group_rank)
        return rank if rank is not None else fallback

    def outside(objects):
        return objects.me not in objects.ranks

    def all_gather(original):
        def all_gather_object(object_list, obj, group=None):
            objects = Objects(module, group)
            if outside(objects) or not objects.applies():
                return original(object_list, obj, group)
            object_list[: len(objects.ranks)] = objects.gather(obj, True)
            return None

        return all_gather_object

    def gather(original):
        def gather_object(obj, object_gather_list=None, dst=None, group=None, group_dst=None):
            objects = Objects(module, group)
            if outside(objects) or not objects.applies():
                named = {"group": group} if group_dst is None else {"group": group, "group_dst": group_dst}
                return original(obj, object_gather_list, 0 if dst is None and group_dst is None else dst, **named)
            to = in_group(module, group, dst, group_dst, 0)
            got = objects.gather(obj, objects.me == to)
            if objects.me == to:
                object_gather_list[: len(got)] = got
            return None

        return gather_object

    def broadcast(original):
        def broadcast_object_list(object_list, src=None, group=None, device=None, group_src=None):
            objects = Objects(module, group)
            if outside(objects) or not objects.applies():
                named = {} if group_src is None else {"group_src": group_src}
                return original(object_list, 0 if src is None and group_src is None else src, group, device, **named)
            source = in_group(module, group, src, group_src, 0)
            if source == objects.me:
                objects.send("broadcast", (source,), list(object_list))
            else:
                object_list[:] = objects.receive("broadcast", (source,), source, list(object_list))
            return None

        return broadcast_object_list

    def scatter(original):
        def scatter_object_list(scatter_object_output_list, scatter_object_input_list=None, src=None, group=None, group_src=None):
            objects = Objects(module, group)
            if outside(objects) or not objects.applies():
                named = {"group": group} if group_src is None else {"group": group, "group_src": group_src}
                return original(scatter_object_output_list, scatter_object_input_list, 0 if src is None and group_src is None else src, **named)
            source = in_group(module, group, src, group_src, 0)
            if source == objects.me:
                everything = list(scatter_object_input_list)
                objects.send("scatter", (source,), everything)
            else:
                everything = objects.receive("scatter", (source,), source, [scatter_object_output_list[0]] * len(objects.ranks))
            scatter_object_output_list[0] = everything[objects.ranks.index(objects.me)]
            return None

        return scatter_object_list

    def send(original):
        def send_object_list(object_list, dst=None, group=None, device=None, *args, **named):
            objects = Objects(module, group)
            if outside(objects) or not objects.applies():
                return original(object_list, dst, group, device, *args, **named)
            to = in_group(module, group, dst, named.get("group_dst"))
            objects.send("send", (objects.me, to), list(object_list))
            return None

        return send_object_list

    def receive(original):
        def recv_object_list(object_list, src=None, group=None, device=None, *args, **named):
            objects = Objects(module, group)
            source = in_group(module, group, src, named.get("group_src"))
            if outside(objects) or not objects.applies() or source is None:
                return original(object_list, src, group, device, *args, **named)
            object_list[:] = objects.receive("send", (source, objects.me), source, list(object_list))
            return source

        return recv_object_list

    for name, make in (
        ("all_gather_object", all_gather),
        ("gather_object", gather),
        ("broadcast_object_list", broadcast),
        ("scatter_object_list", scatter),
        ("send_object_list", send),
        ("recv_object_list", receive),
    ):
        replace(name, make)


# -- the end


def _write(name, text=""):
    path = _place(name)
    with open(path + ".part", "w") as f:
        f.write(text)
    os.replace(path + ".part", path)


def _read(name):
    try:
        with open(_place(name)) as f:
            return f.read(1)
    except OSError:
        return ""


def _pids(prefix):
    for name in os.listdir(directory()):
        number = name[len(prefix) :]
        if name.startswith(prefix) and number.isdigit():
            yield int(number)


def _runs(pid):
    try:
        with open("/proc/%d/stat" % pid) as f:
            return f.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def all_say(what: str, answer: bool) -> bool:
    """Whether each rank that is run says so, asked of all of them at the same step."""
    if World.rank is None or World.size < 2:
        return False
    _write("%s-%d" % (what, os.getpid()), "1" if answer else "0")
    until = time.monotonic() + GRACE_SECONDS
    while time.monotonic() < until:
        answers = [_read("%s-%d" % (what, pid)) for pid in _pids("live-") if _runs(pid)]
        if "" not in answers:
            return "0" not in answers
        time.sleep(0.02)
    return False


def leave() -> None:
    """This rank has seen enough. The others must find its store and its sockets until they have, too."""
    if World.rank is None or World.size < 2:
        return
    _write("stopped-%d" % os.getpid())
    library = _nccl()
    if library is not None:
        library.gresize_nccl_leave()
    until = time.monotonic() + GRACE_SECONDS + 2
    while time.monotonic() < until:
        stopped = set(_pids("stopped-"))
        if not any(_runs(pid) for pid in _pids("live-") if pid not in stopped):
            return
        time.sleep(0.02)


def others_left() -> bool:
    """Another rank of this world stopped so long ago that this one waits for it in vain."""
    if World.rank is None or World.size < 2:
        return False
    for pid in _pids("stopped-"):
        try:
            since = time.time() - os.stat(_place("stopped-%d" % pid)).st_mtime
        except OSError:
            continue
        if pid != os.getpid() and since > GRACE_SECONDS:
            return True
    return False
