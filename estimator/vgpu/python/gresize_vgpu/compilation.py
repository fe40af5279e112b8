"""What is done before a compiler looks at the program: hooks that it would trace through step aside."""
from . import report


def before(torch, retire):
    """Have retire(what) called before torch.compile looks at anything."""

    def retiring(original):
        def call(*args, **kwargs):
            try:
                retire(args[0] if args else kwargs.get("model"))
            except Exception:
                report.complain()
            return original(*args, **kwargs)

        # Not functools.wraps: what looks at the wrapped function's own code must find it.
        call.__name__, call.__doc__, call.__wrapped__ = original.__name__, original.__doc__, original
        return call

    if hasattr(torch, "compile"):
        torch.compile = retiring(torch.compile)
    if hasattr(torch.nn.Module, "compile"):
        torch.nn.Module.compile = retiring(torch.nn.Module.compile)
