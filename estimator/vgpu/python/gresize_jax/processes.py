"""Several processes of one program: how they meet, agree and end together."""
from __future__ import annotations

import functools
import sys

from gresize_imports import after_import
from gresize_vgpu.dist import ranks
from gresize_vgpu.process import guard

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Any, Callable


def hook(silently: Callable[..., Any]) -> None:
    """Called once jax has been imported; silently calls what reads nothing by which the program goes."""
    distributed: Any = sys.modules["jax._src.distributed"]
    original = distributed.State.initialize

    @functools.wraps(original)
    def initialize(state: Any, *args: Any, **kwargs: Any) -> None:
        original(state, *args, **kwargs)
        guard.quietly(ranks.join, state.process_id, state.num_processes)

    distributed.State.initialize = initialize
    after_import("jax.experimental.multihost_utils", functools.partial(_hook_agreement, silently))


def _hook_agreement(silently, module):
    """What the processes compare has gone through a computation, whose result nobody has computed: it takes its memory, and they agree."""
    compare, send = silently(module.assert_equal), module.broadcast_one_to_all

    @functools.wraps(compare)
    def assert_equal(*args: Any, **kwargs: Any) -> None:
        try:
            compare(*args, **kwargs)
        except AssertionError:
            pass

    @functools.wraps(send)
    def broadcast_one_to_all(in_tree: Any, *args: Any, **kwargs: Any) -> Any:
        send(in_tree, *args, **kwargs)
        return sys.modules["jax"].tree_util.tree_map(sys.modules["numpy"].asarray, in_tree)

    module.assert_equal, module.broadcast_one_to_all = assert_equal, broadcast_one_to_all


def place() -> tuple[int | None, int]:
    """The number of this process, where there are several, and how many there are."""
    state = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    count = getattr(state, "num_processes", None) or 1
    return (getattr(state, "process_id", None) if count > 1 else None), count
