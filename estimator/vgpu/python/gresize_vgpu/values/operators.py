"""What the layer knows of each operator of PyTorch: one registration for each, as PyTorch's own fake implementations are registered.

An operator that is not here runs as it is, and nothing is known of its result. One whose own code asks the card for a size is a class or a function of
its own, in dynamic_shapes.py, length_reads.py or validation.py.
"""
from __future__ import annotations

from . import guesses
from .intervals import cast, joined, minus, plus, same, times
from .synthetic_floats import Plausible

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Any, Callable

EQUAL, UNEQUAL = True, False
GIVEN, DRAWN = "given", "drawn"


class Operator:
    """names: of the functions of torch and the methods of Tensor that are this operator. writes: of the methods that write to their first argument.

    again: the call on copies says what the call gives. guess: what is said of a result of which that is not known. one_number: of numbers that are all
    the same it gives one number, however many there are. shape_of_others: the arguments behind the first give a shape alone. compares: it asks whether
    two are alike, or not. healthy: what a healthy run is told. span: between which numbers a whole number lies that it gives. floats: what floats
    that it gives read as. joins: where it joins the equal entries of sparse tensors first; joins_backward: so does its backward pass, in C++ alone.
    fills: the number that it makes a tensor of, or fills_by: which argument that is. makes: it makes a tensor of what the program has, or draws it.
    """

    __slots__ = ("names", "writes", "again", "guess", "one_number", "shape_of_others", "compares", "healthy", "span", "floats", "joins", "joins_backward", "fills", "fills_by", "makes")

    def __init__(self, names: str, writes: str, again: bool, **known: Any) -> None:
        self.names, self.writes, self.again = names.split(), writes.split(), again
        self.guess: Callable[..., None] | None = known.pop("guess", None)
        self.one_number: bool = known.pop("one_number", False)
        self.shape_of_others: bool = known.pop("shape_of_others", False)
        self.compares: bool | None = known.pop("compares", None)
        self.healthy: bool | None = known.pop("healthy", None)
        self.span: Callable[..., Any] | None = known.pop("span", None)
        self.floats: Callable[..., Any] | None = known.pop("floats", None)
        self.joins: list[str] = known.pop("joins", "").split()
        self.joins_backward: bool = known.pop("joins_backward", False)
        self.fills: int | None = known.pop("fills", None)
        self.fills_by: int | None = known.pop("fills_by", None)
        self.makes: str = known.pop("makes", "")
        if known:
            raise TypeError("an operator has no %s" % ", ".join(known))


OPERATORS: list[Operator] = []
PROPERTY = Operator("T mT", "", True)  # another view, which is asked for without a call


def register(names: str, writes: str = "", again: bool = True, **known: Any) -> None:
    OPERATORS.append(Operator(names, writes, again, **known))


# Views, and other places for the same elements.
register("view", span=same, floats=Plausible.alike)
register("reshape", span=same, floats=Plausible.alike)
register("flatten", span=same, floats=Plausible.alike)
register("unflatten", span=same, floats=Plausible.alike)
register("ravel", span=same)
register("squeeze", "squeeze_", span=same, floats=Plausible.alike)
register("unsqueeze", "unsqueeze_", span=same, floats=Plausible.alike)
register("transpose", "transpose_", span=same, floats=Plausible.alike)
register("t", "t_", span=same, floats=Plausible.alike)
register("permute", span=same, floats=Plausible.alike)
register("movedim", span=same, floats=Plausible.alike)
register("swapaxes", "swapaxes_", span=same)
register("swapdims", span=same)
register("expand", span=same, floats=Plausible.alike)
register("expand_as", shape_of_others=True, span=same, floats=Plausible.alike)
register("view_as", shape_of_others=True, span=same, floats=Plausible.alike)
register("reshape_as", shape_of_others=True, span=same, floats=Plausible.alike)
register("broadcast_to broadcast_tensors")
register("select", span=same, floats=Plausible.alike)
register("narrow", span=same, floats=Plausible.alike)
register("chunk", span=same, floats=Plausible.alike)
register("split", span=same, floats=Plausible.alike)
register("tensor_split", span=same, floats=Plausible.alike)
register("hsplit vsplit dsplit")
register("unbind", span=same, floats=Plausible.alike)
register("unfold")
register("diagonal")
register("flip", span=same, floats=Plausible.alike)
register("roll", span=same, floats=Plausible.alike)
register("repeat", span=same, floats=Plausible.alike)
register("tile")
register("contiguous", span=same, floats=Plausible.alike)
register("clone", span=same, floats=Plausible.alike)
register("detach", span=same, floats=Plausible.alike)

# Elements by their places.
register("__getitem__", span=same, floats=Plausible.alike)
register("", "__setitem__")
register("index_select", span=same, floats=Plausible.alike)
register("gather", span=same, floats=Plausible.alike)
register("take", span=same)
register("take_along_dim", span=same)
register("masked_select", span=same)
register("masked_fill", "masked_fill_")
register("masked_scatter", "masked_scatter_")
register("where")
register("scatter", "scatter_")
register("scatter_add", "scatter_add_")
register("scatter_reduce", "scatter_reduce_")
register("index_add", "index_add_")
register("index_fill", "index_fill_")
register("index_copy", "index_copy_")
register("index_put", "index_put_")
register("index_reduce")
register("select_scatter")
register("slice_scatter")
register("put_along_dim")
register("tril", "tril_")
register("triu", "triu_")
register("fill", "fill_")
register("", "zero_")
register("", "resize_")
register("", "fill_diagonal_")
register("nonzero argwhere")

# Several tensors into one.
register("cat concat", span=joined, floats=Plausible.joined)
register("concatenate", span=joined)
register("stack", span=joined, floats=Plausible.joined)
register("hstack vstack", span=joined, floats=Plausible.joined)
register("dstack column_stack row_stack block_diag")
register("meshgrid outer combinations cartesian_prod")

# Arithmetic.
register("add __add__ __radd__", "add_ __iadd__", span=plus)
register("sub subtract __sub__", "sub_ subtract_ __isub__", span=minus)
register("rsub")
register("__rsub__", floats=Plausible.subtracted)
register("mul multiply __mul__ __rmul__", "mul_ multiply_ __imul__", span=times)
register("div divide __truediv__ __div__", "div_ divide_ __itruediv__", floats=Plausible.divided)
register("true_divide", floats=Plausible.divided)
register("__rtruediv__")
register("floor_divide __floordiv__ __rfloordiv__", "floor_divide_ __ifloordiv__")
register("remainder __mod__ __rmod__", "remainder_ __imod__")
register("fmod", "fmod_")
register("pow __pow__ __rpow__", "pow_")
register("square")
register("neg negative __neg__", "neg_")
register("abs absolute __abs__", "abs_")
register("__pos__")
register("sign", "sign_")
register("clamp clip", "clamp_ clip_")
register("minimum maximum")
register("lerp")
register("floor", "floor_", floats=Plausible.floor)
register("ceil", "ceil_", floats=Plausible.ceil)
register("round", "round_", floats=Plausible.round)
register("trunc")
register("reciprocal")
register("sqrt")
register("deg2rad")
register("exp", again=False, floats=Plausible.exp)
register("log", again=False, floats=Plausible.log)
register("sigmoid sigmoid_", again=False, floats=Plausible.half)
register("bitwise_and", "bitwise_and_ __iand__", one_number=True)
register("bitwise_or", "bitwise_or_ __ior__", one_number=True)
register("bitwise_xor", "bitwise_xor_ __ixor__")
register("bitwise_not", "bitwise_not_")
register("bitwise_left_shift bitwise_right_shift __lshift__ __rshift__")

# Masks.
register("eq __eq__", "eq_", guess=guesses.found, compares=EQUAL)
register("ne __ne__", "ne_", guess=guesses.missing, compares=UNEQUAL)
register("not_equal", guess=guesses.found)
register("lt less __lt__", "lt_", guess=guesses.found)
register("le less_equal __le__", "le_", guess=guesses.found)
register("gt greater __gt__", "gt_", guess=guesses.found)
register("ge greater_equal __ge__", "ge_", guess=guesses.found)
register("isclose", guess=guesses.found)
register("isin", guess=guesses.found)
register("signbit", guess=guesses.found)
register("__and__", guess=guesses.found, one_number=True)
register("__or__", guess=guesses.found, one_number=True)
register("__xor__ __rand__ __ror__ __rxor__", guess=guesses.found)
register("__invert__", guess=guesses.missing, one_number=True)
register("logical_and", "logical_and_", guess=guesses.found, one_number=True)
register("logical_or", "logical_or_", guess=guesses.found, one_number=True)
register("logical_xor", "logical_xor_", guess=guesses.found)
register("logical_not", "logical_not_", guess=guesses.missing, one_number=True)
register("any", guess=guesses.found, one_number=True)
register("all", guess=guesses.found, one_number=True)
register("isnan isinf isneginf isposinf", again=False, healthy=False)
register("isfinite", again=False, healthy=True)

# Many numbers into fewer, and orders of them.
register("sum", guess=guesses.count, floats=Plausible.total, joins="sparse")
register("count_nonzero", guess=guesses.count)
register("prod")
register("mean", floats=Plausible.alike)
register("amax", span=same, floats=Plausible.alike)
register("amin", span=same, floats=Plausible.alike)
register("max min", guess=guesses.best)
register("argmax argmin", guess=guesses.best)
register("mode median")
register("cumsum", "cumsum_")
register("cumprod cummax cummin")
register("diff")
register("histc")
register("softmax", again=False, floats=Plausible.softmax, joins="sparse")
register("log_softmax", again=False, floats=Plausible.log_softmax, joins="sparse")
register("topk", guess=guesses.chosen)
register("sort argsort", guess=guesses.order)
register("multinomial", guess=guesses.drawn)
register("bucketize searchsorted", guess=guesses.place)

# Other types and places.
register("float double half bfloat16", floats=Plausible.alike)
register("long int short char byte", guess=guesses.cast, span=cast)
register("bool", guess=guesses.cast)
register("type", guess=guesses.cast, span=cast, floats=Plausible.alike)
register("type_as", guess=guesses.cast, span=cast, floats=Plausible.alike)
register("to cuda", again=False, span=cast, floats=Plausible.alike)

# Products with sparse tensors.
register("mm", again=False, joins="Tensor torch sparse", joins_backward=True)
register("addmm", again=False, joins="Tensor torch sparse", joins_backward=True)
register("matmul bmm", again=False, joins="Tensor torch", joins_backward=True)
register("__matmul__", again=False, joins="Tensor", joins_backward=True)
register("smm", again=False, joins="Tensor torch")
register("sspaddmm hspmm", again=False, joins="torch")
register("coalesce to_sparse to_sparse_csr to_sparse_csc", again=False, joins="Tensor")

# Tensors that the program makes.
register("zeros zeros_like new_zeros", again=False, fills=0)
register("ones ones_like new_ones", again=False, fills=1)
register("full full_like", again=False, fills_by=1)
register("new_full", again=False, fills_by=2)
register("arange linspace eye tril_indices triu_indices", again=False, makes=GIVEN)
register("tensor as_tensor asarray", again=False, makes=GIVEN)
register("randint randperm", again=False, makes=DRAWN)
