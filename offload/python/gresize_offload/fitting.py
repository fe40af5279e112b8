"""Says where a plan was made for something else than what runs: another PyTorch, card, program or batch. Under `gresize run --plan` the program ends before its first
step then; in a job that gresized has given a plan it runs all the same, as if there were none."""
from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from gresize_types import Torch

    from .plan import Plan

GIB = 1 << 30
AGAIN = "make a plan for it with gresize run --target SIZE --gpu NAME --only-plan -o FILE"


def tell(text: str) -> None:
    if os.environ.get("GRESIZE_OFFLOAD_STRICT"):
        raise SystemExit("gresize: %s" % text)
    print("gresize: %s" % text, file=sys.stderr)


def release(torch: Torch, plan: Plan) -> None:
    here = str(torch.__version__)
    if plan.torch_version and plan.torch_version != here:
        tell("the plan was made for PyTorch %.40s, and this is %s: what it takes may be more; %s" % (plan.torch_version, here, AGAIN))


def card(torch: Torch, plan: Plan) -> None:
    """Has it checked when the program first uses the card."""

    def first_use():
        try:
            properties = torch.cuda.get_device_properties(torch.cuda.current_device())
            if plan.gpu and plan.gpu != properties.name:
                tell("the plan was made for %.80s, and this is %s: what it takes may be more; %s" % (plan.gpu, properties.name, AGAIN))
            if properties.total_memory < plan.target_bytes:
                tell("the plan takes up to %.2f GiB, and the card has %.2f: %s" % (plan.target_bytes / GIB, properties.total_memory / GIB, AGAIN))
        except Exception:  # nothing is said then
            pass

    torch.cuda._lazy_call(first_use)


class Program:
    """Whether the iterations are the plan's."""

    def __init__(self) -> None:
        self.said = False

    def differs(self, iteration: int, ordinal: int) -> None:
        if self.said:
            return
        self.said = True
        if iteration == 1:
            tell("tensor %d of the first iteration is none of the plan's: another program or another batch, of which nothing would be moved; %s" % (ordinal, AGAIN))
        else:
            print("gresize: tensor %d of iteration %d is none of the plan's: what differs stays on the card, and the job may take more than was planned" % (ordinal, iteration), file=sys.stderr)
