"""Several processes of one program: how they meet, agree and end together."""
from __future__ import annotations

import functools
import hashlib
import os
import pickle
import sys

from gresize_imports import after_import
from gresize_vgpu.dist import ranks
from gresize_vgpu.process import guard, settings

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Any, Callable


# How long the first process waits for the others: a share of the run's time.
MEETING_SHARE = 4
alone_of = 0  # the number of processes, where this is the only one that is run


class NotRun(Exception):
    """The other processes are not run."""


class _Library:
    """jaxlib, but for the client by which processes meet."""

    def __init__(self, library: Any, state: Any) -> None:
        self._library, self._state = library, state

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)

    def get_distributed_runtime_client(self, *args: Any, init_timeout: int = 300, **kwargs: Any) -> Any:
        if self._state.num_processes > ranks.most_ranks():
            raise NotRun
        seconds = int(settings.number("GRESIZE_PROBE_SECONDS", 120.0, float) / MEETING_SHARE)
        return self._library.get_distributed_runtime_client(*args, init_timeout=min(init_timeout, max(seconds, 1)), **kwargs)


def hook(silently: Callable[..., Any]) -> None:
    """Called once jax has been imported; silently calls what reads nothing by which the program goes."""
    distributed: Any = sys.modules["jax._src.distributed"]
    original = distributed.State.initialize
    library = "_jax" if hasattr(distributed, "_jax") else "xla_extension"
    setattr(distributed, library, _Library(getattr(distributed, library), distributed.global_state))

    @functools.wraps(original)
    def initialize(state: Any, *args: Any, **kwargs: Any) -> None:
        try:
            original(state, *args, **kwargs)
        except Exception as error:
            nobody = isinstance(error, NotRun)
            if nobody and state.process_id:
                os._exit(0)  # the first stands for all
            if not nobody and (state.process_id or "DEADLINE_EXCEEDED" not in str(error)):
                raise
            _alone(state, kwargs.get("local_device_ids"))
            return
        guard.quietly(ranks.join, state.process_id, state.num_processes)

    distributed.State.initialize = initialize
    after_import("jax.experimental.multihost_utils", functools.partial(_hook_agreement, silently))


def _alone(state, local):
    """XLA has a client for the first process of many that are not there, with all of their cards: what is exchanged takes its memory and is not waited for."""
    global alone_of
    alone_of = state.num_processes
    state.unused = state.service, state.client  # neither is ended here: that would wait for the others
    state.service, state.client, state.num_processes = None, None, 1
    cards = len(local) if isinstance(local, (list, tuple)) else 1 if local is not None else len(settings.cards()) or settings.integer("GRESIZE_VGPU_COUNT") or 1
    sys.modules["jax"].config.update("jax_mock_gpu_topology", "1x%dx%d" % (alone_of, cards))


class Told:
    """What one process tells all others, as far as it is known: the computation by which they exchange it takes its memory and computes nothing."""

    MOST_BYTES = 1 << 16
    WAIT_MILLIS = 60000

    def __init__(self) -> None:
        self.count = 0

    def by_source(self, tree: Any, is_source: bool) -> list[Any] | None:
        """The leaves of the process that tells, as bytes where they are large, None where they came from a card; None where nothing was heard of it."""
        self.count += 1
        client = sys.modules["jax._src.distributed"].global_state.client
        if client is None:
            return None
        key = "gresize/told/%d" % self.count
        if is_source:
            leaves = [self._known(leaf) for leaf in sys.modules["jax"].tree_util.tree_leaves(tree)]
            client.key_value_set(key, pickle.dumps(leaves, 4).hex())
            return leaves
        return pickle.loads(bytes.fromhex(client.blocking_key_value_get(key, self.WAIT_MILLIS)))

    def _known(self, leaf: Any) -> Any:
        if isinstance(leaf, sys.modules["jax"].Array):
            return None
        value = sys.modules["numpy"].asarray(leaf)
        return value if value.nbytes <= self.MOST_BYTES else hashlib.sha256(value.tobytes()).digest()

    def differs(self, leaf: Any, told: Any) -> bool:
        own = self._known(leaf)
        if own is None or told is None:
            return False
        if isinstance(told, bytes) or isinstance(own, bytes):
            return type(own) is not type(told) or own != told
        return not sys.modules["numpy"].array_equal(own, told)


def _hook_agreement(silently, module):
    """Who compares what all have goes by what was read back of a computation, which nobody has computed. What is known of it is told another way."""
    compare, send, told = silently(module.assert_equal), module.broadcast_one_to_all, Told()
    tree = sys.modules["jax"].tree_util

    def heard(in_tree: Any, is_source: bool) -> list[Any] | None:
        try:
            leaves = told.by_source(in_tree, is_source)
        except Exception:
            guard.complain()
            return None
        return leaves if leaves is not None and len(leaves) == len(tree.tree_leaves(in_tree)) else None

    @functools.wraps(compare)
    def assert_equal(in_tree: Any, fail_message: str = "") -> None:
        try:
            compare(in_tree, fail_message)
        except AssertionError:
            pass
        leaves = heard(in_tree, sys.modules["jax"].process_index() == 0)
        if leaves is not None and any(map(told.differs, tree.tree_leaves(in_tree), leaves)):
            raise AssertionError("%s. The first process has other values than this one." % fail_message)

    @functools.wraps(send)
    def broadcast_one_to_all(in_tree: Any, is_source: bool | None = None) -> Any:
        send(in_tree, is_source)
        own = tree.tree_map(sys.modules["numpy"].asarray, in_tree)
        leaves = heard(in_tree, sys.modules["jax"].process_index() == 0 if is_source is None else is_source)
        flat, shape = tree.tree_flatten(own)
        return own if leaves is None else tree.tree_unflatten(shape, [mine if said is None or isinstance(said, bytes) else said for mine, said in zip(flat, leaves)])

    module.assert_equal, module.broadcast_one_to_all = assert_equal, broadcast_one_to_all


def place() -> tuple[int | None, int]:
    """The number of this process, where there are several, and how many there are."""
    if alone_of:
        return 0, alone_of
    state = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    count = getattr(state, "num_processes", None) or 1
    return (getattr(state, "process_id", None) if count > 1 else None), count
