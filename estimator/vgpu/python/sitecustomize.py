"""Puts gresize's Python layers into every interpreter of a probe, or of a job that carries out a plan, then runs the sitecustomize that this one hides."""
import os
import sys


def _install(layer):
    try:
        __import__(layer).install()
    except Exception:  # the user's program runs, whatever is wrong with ours
        pass


def _run_hidden():
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    here = os.path.dirname(os.path.abspath(__file__))
    others = [p for p in sys.path if os.path.abspath(p or ".") != here]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_install("gresize_vgpu")
_install("gresize_jax")
_install("gresize_offload")
_run_hidden()
