"""A second engine for random programs: long doubles beside the values at points near by, which share memory alike.

A derivative along directions is a difference of those neighbours, so no rule of differentiation is written here; views,
writes through them, detached memory and gradient modes act on a neighbour's memory as they do on the value's.
"""

import builtins
import contextlib
import itertools

import numpy as np

STEPS = {1: 1e-6, 2: 2e-5, 3: 2e-4}
FAR = 0.03  # how far a point must be from a kink


class Reject(Exception):
    """The program leaves the domain that differences can judge: a kink, a pole, a value too large."""


class Refused(RuntimeError):
    """What every engine must refuse."""


class Mode:
    on = True
    neighbours = 0
    overlap = False  # whether a write read what it wrote over, elsewhere than where it wrote it


@contextlib.contextmanager
def grad_mode(on):
    old, Mode.on = Mode.on, on
    try:
        yield
    finally:
        Mode.on = old


def no_grad():
    return grad_mode(False)


def enable_grad():
    return grad_mode(True)


class Memory:
    """What views have in common: whether it is a leaf's, which only no_grad may write."""

    def __init__(self, leaf=False):
        self.leaf, self.writes = leaf, 0


float16, float32, float64, complex64, complex128, int64, bool_ = "f2", "f4", "f8", "c8", "c16", "i8", "b1"


def wide(dtype):
    return {"f": np.longdouble, "c": np.clongdouble, "i": np.int64, "b": np.bool_}[dtype[0]]


class Tensor:
    def __init__(self, value, near, dtype, memory=None, unrecorded_at=None):
        self.value, self.near, self.dtype = value, near, dtype
        self.memory = memory or Memory()
        self.unrecorded_at = unrecorded_at
        self.hooked = False

    # A view made in no_grad has no history until a recorded write of its memory gives it one.
    recorded = property(lambda self: self.unrecorded_at is None or self.memory.writes > self.unrecorded_at)

    def points(self):
        return [self.value + d for d in self.near] if self.recorded else [self.value] * Mode.neighbours

    shape = property(lambda self: self.value.shape)
    ndim = property(lambda self: self.value.ndim)
    size = property(lambda self: self.value.size)
    real = property(lambda self: view(self, lambda a: a.real, dtype={"c8": "f4", "c16": "f8"}[self.dtype]))
    imag = property(lambda self: view(self, lambda a: a.imag, dtype={"c8": "f4", "c16": "f8"}[self.dtype]))
    T = property(lambda self: view(self, lambda a: a.T))
    mT = property(lambda self: view(self, lambda a: np.swapaxes(a, -1, -2)))

    def detach(self):
        out = view(self, lambda a: a)
        out.near = [np.zeros_like(a) for a in self.near]
        out.memory, out.unrecorded_at = Memory(), None
        return out

    def register_hook(self, hook):
        if self.memory.leaf == "constant" or self.hooked:
            raise Refused
        self.hooked = True
        for d in self.near:
            d *= hook.factor

    def __getitem__(self, key):
        return index(self, key)

    def __setitem__(self, key, operand):
        part = index(self, key, write=True)
        if part is not None:
            write(part, operand, lambda old, new: np.broadcast_to(new, np.shape(old)))
            return
        key = plain(key)
        if self.value[key].size == 0:
            raise Reject  # whether a write of nothing into a leaf is refused is tested by itself
        check_write(self)
        points = [operand] * Mode.neighbours
        if isinstance(operand, Tensor):
            check_cast(self, operand)
            points = operand.points()
        new = operand.value if isinstance(operand, Tensor) else operand
        wanted = np.shape(self.value[key])
        if np.broadcast_shapes(np.shape(new), wanted) != wanted:
            raise Reject
        if isinstance(operand, Tensor) and operand.memory is self.memory:
            raise Reject  # which of two overlapping elements is read first is not ours to say
        if Mode.on:
            for d, p in zip(self.near, points):
                d[key] = p - new
        self.value[key] = new
        self.memory.writes += Mode.on

    def __iter__(self):
        return (self[i] for i in range(self.shape[0]))


def plain(key):
    if isinstance(key, tuple):
        return tuple(plain(k) for k in key)
    return key.value if isinstance(key, Tensor) else key


def index(x, key, write=False):
    parts = key if isinstance(key, tuple) else (key,)
    if all(isinstance(k, (int, slice)) or k is None or k is Ellipsis for k in parts):
        whole = parts if any(k is Ellipsis for k in parts) else (*parts, Ellipsis)  # never NumPy's own scalars
        return view(x, lambda a: a[whole])
    if write:
        return None
    return apply(lambda a: a[plain(key)].copy(), x)


def tensor(values, dtype=None, requires_grad=False):
    value = np.array(values, dtype=wide(dtype))
    near = [np.zeros_like(value) for _ in range(Mode.neighbours)]
    return Tensor(value, near, dtype, Memory(requires_grad or "constant"))


def view(x, f, dtype=None):
    at = x.unrecorded_at if not x.recorded else None if Mode.on else x.memory.writes
    return Tensor(f(x.value), [f(a) for a in x.near], dtype or x.dtype, x.memory, at)


def common(*operands):
    tensors = [x.dtype for x in operands if isinstance(x, Tensor)]
    order = ["b1", "i8", "f2", "f4", "f8", "c8", "c16"]
    best = builtins.max(tensors, key=order.index)
    return "c16" if best == "c8" and "f8" in tensors else best


def check(values, top=40.0):
    for a in values:
        if not np.all(np.isfinite(a)) or (a.size and np.max(np.abs(a)) > top):
            raise Reject
    return values


def apply(f, *operands, dtype=None):
    """f of the values and of each neighbour's; operands are tensors or numbers."""
    values = [x.value if isinstance(x, Tensor) else x for x in operands]
    value = np.asarray(f(*values))
    near = []
    if Mode.on:
        points = [x.points() if isinstance(x, Tensor) else [x] * Mode.neighbours for x in operands]
        near = [np.asarray(f(*at)) - value for at in zip(*points)]
        near = [a.astype(value.dtype) for a in near]
    else:
        near = [np.zeros_like(value) for _ in range(Mode.neighbours)]
    check([value])
    # Results lie in row-major order, whatever their operands do.
    return Tensor(np.array(value, order="C"), [np.array(a, order="C") for a in near], dtype or common(*operands))


def check_write(x):
    if x.memory.leaf is True and Mode.on:
        raise Refused
    if any(s == 0 and n > 1 for s, n in zip(x.value.strides, x.value.shape)):
        raise Refused


def check_cast(x, operand):
    if operand.dtype != x.dtype and (operand.dtype, x.dtype) not in (("f4", "f8"), ("f4", "c16"), ("f8", "c16")):
        raise Reject


def write(x, operand, f):
    """Writes f(x, operand) into x's memory, with what its neighbours become; in no_grad those stay as they are."""
    check_write(x)
    if isinstance(operand, Tensor):
        check_cast(x, operand)
        a, b = x.value, operand.value
        same = a.__array_interface__["data"] == b.__array_interface__["data"] and a.strides == b.strides
        Mode.overlap = Mode.overlap or (np.shares_memory(a, b) and not same)
    # A write acts on the memory's history, whatever mode the view was made in.
    x.unrecorded_at = None if Mode.on else x.unrecorded_at
    new = apply(f, x, operand)
    if new.shape != x.shape:
        raise Reject
    if Mode.on:
        for d, p in zip(x.near, new.near):
            d[...] = p
    x.value[...] = new.value
    x.memory.writes += Mode.on
    return x


def far(a, points=(0.0,)):
    for p in points:
        if np.size(a) and np.min(np.abs(a - p)) < FAR:
            raise Reject
    return a


def unary(f, ok=None):
    def call(x):
        if isinstance(x, Tensor) and ok is not None:
            ok(x.value)
        return apply(f, x)

    return call


def positive_only(a):
    if np.size(a) and (np.iscomplexobj(a) or np.min(a) < 0.1):
        raise Reject


def real_only(a):
    if np.iscomplexobj(a):
        raise Reject


def small(a):
    real_only(a)
    if np.size(a) and np.max(np.abs(a)) > 3:
        raise Reject


def smooth(a):
    real_only(a)
    far(a)


def rounded(a):
    real_only(a)
    if np.size(a) and np.min(np.abs(2 * a - np.round(2 * a))) < FAR:
        raise Reject


def erf_of(a):
    """The series of positive terms 2 / sqrt(pi) exp(-a^2) sum of 2^n a^(2n+1) / (2n+1)!!."""
    a = np.asarray(a, dtype=np.longdouble)
    term = total = a
    for n in range(1, 120):
        term = term * 2 * a * a / (2 * n + 1)
        total = total + term
    return 2 / np.sqrt(np.longdouble(np.pi) + np.longdouble(1.2246467991473532e-16)) * np.exp(-a * a) * total


def dense_softmax(a, axis):
    e = np.exp(a - a.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


negative = unary(np.negative)
positive = unary(np.array)
copy = unary(np.array)
contiguous = unary(np.array)
square = unary(lambda a: a * a)
exp = unary(np.exp, small)
expm1 = unary(np.expm1, small)
sin = unary(np.sin, real_only)
cos = unary(np.cos, real_only)
tanh = unary(np.tanh, real_only)
erf = unary(erf_of, small)
gelu = unary(lambda a: a * (1 + erf_of(a / np.sqrt(np.longdouble(2)))) / 2, small)
sigmoid = unary(lambda a: 1 / (1 + np.exp(-a)), real_only)
relu = unary(lambda a: np.maximum(a, 0), smooth)
sign = unary(np.sign, smooth)
floor = unary(np.floor, rounded)
round = unary(np.round, rounded)
sqrt = unary(np.sqrt, positive_only)
log = unary(np.log, positive_only)
log1p = unary(np.log1p, positive_only)
reciprocal = unary(lambda a: 1 / a, lambda a: far(np.abs(a), (0, 0.1)) is None)
conj = unary(np.conj)


def abs(x):
    far(np.abs(x.value))
    return apply(np.abs, x, dtype={"c8": "f4", "c16": "f8"}.get(x.dtype, x.dtype))


def leaky_relu(x, slope=0.01):
    smooth(x.value)
    return apply(lambda a: np.where(a > 0, a, a * np.longdouble(slope)), x)


def value_of(x):
    return x.value if isinstance(x, Tensor) else np.asarray(x)


def add(x, y):
    return apply(lambda a, b: a + b, x, y)


def subtract(x, y):
    return apply(lambda a, b: a - b, x, y)


def multiply(x, y):
    return apply(lambda a, b: a * b, x, y)


def quotient_ok(x, y):
    if np.size(value_of(y)) and np.min(np.abs(value_of(y))) < 0.1:
        raise Reject


def divide(x, y):
    quotient_ok(x, y)
    return apply(lambda a, b: a / b, x, y)


def remainder_ok(x, y):
    quotient_ok(x, y)
    real_only(value_of(x)), real_only(value_of(y))
    q = value_of(x) / value_of(y)
    if np.size(q) and np.min(np.abs(q - np.round(q))) < FAR:
        raise Reject


def remainder(x, y):
    floor_divide(x, y)
    return apply(lambda a, b: a - np.floor(a / b) * b, x, y)


def floor_divide(x, y):
    remainder_ok(x, y)
    out = apply(lambda a, b: np.floor(a / b), x, y)
    if any(np.any(d) for d in out.near):
        raise Reject  # a neighbour lies beyond the jump
    return out


def divmod(x, y):
    return floor_divide(x, y), remainder(x, y)


def pow(x, y):
    if not (isinstance(y, int) and y >= 0):
        positive_only(value_of(x))
        real_only(value_of(y))
    return apply(lambda a, b: a**b, x, y)


def apart(x, y):
    real_only(value_of(x)), real_only(value_of(y))
    far(value_of(x) - value_of(y))


def maximum(x, y):
    apart(x, y)
    return apply(np.maximum, x, y)


def minimum(x, y):
    apart(x, y)
    return apply(np.minimum, x, y)


def copysign(x, y):
    smooth(value_of(x)), smooth(value_of(y))
    return apply(np.copysign, x, y)


def clip(x, low, high):
    real_only(x.value)
    for bound in (low, high):
        if bound is not None:
            apart(x, bound)
    big = np.longdouble(1e9)
    low, high = -big if low is None else low, big if high is None else high
    return apply(lambda a, lo, hi: np.minimum(np.maximum(a, lo), hi), x, low, high)


def greater(x, y):
    apart(x, y)
    value = value_of(x) > value_of(y)
    return Tensor(np.asarray(value), [value] * Mode.neighbours, "b1", Memory("constant"))


def where(condition, x, y):
    return apply(lambda a, b: np.where(condition.value, a, b), x, y)


def reduction(f):
    def call(x, axis=None, keepdims=False):
        return apply(lambda a: f(a, axis=axis, keepdims=keepdims), x)

    return call


def no_ties(a, axis):
    """Whether the greatest and least along the axes stand alone."""
    real_only(a)
    axes = tuple(range(a.ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    axes = tuple(k % a.ndim for k in axes)
    rest = [k for k in range(a.ndim) if k not in axes]
    if a.size == 0:
        raise Reject
    flat = np.transpose(a, rest + list(axes)).reshape([a.shape[k] for k in rest] + [-1])
    if flat.shape[-1] > 1 and np.min(np.diff(np.sort(flat, axis=-1), axis=-1)) < FAR:
        raise Reject


def sum(x, axis=None, keepdims=False):
    return reduction(np.sum)(x, axis, keepdims)


def mean(x, axis=None, keepdims=False):
    return reduction(np.mean)(x, axis, keepdims)


def prod(x, axis=None, keepdims=False):
    return reduction(np.prod)(x, axis, keepdims)


def max(x, axis=None, keepdims=False):
    no_ties(x.value, axis)
    return reduction(np.max)(x, axis, keepdims)


def min(x, axis=None, keepdims=False):
    no_ties(x.value, axis)
    return reduction(np.min)(x, axis, keepdims)


def softmax(x, axis=-1):
    real_only(x.value)
    return apply(lambda a: dense_softmax(a, axis), x)


def log_softmax(x, axis=-1):
    real_only(x.value)
    return apply(lambda a: np.log(dense_softmax(a, axis)), x)


def reshape(x, shape):
    if np.may_share_memory(x.value.reshape(shape), x.value):
        return view(x, lambda a: a.reshape(shape))
    return apply(lambda a: a.reshape(shape), x)


def permute_dims(x, axes):
    return view(x, lambda a: np.transpose(a, axes))


def matrix_transpose(x):
    return x.mT


def broadcast_to(x, shape):
    return view(x, lambda a: np.broadcast_to(a, shape))


def expand_dims(x, axis=0):
    return view(x, lambda a: np.expand_dims(a, axis))


def squeeze(x, axis=None):
    return view(x, lambda a: np.squeeze(a, axis))


def flip(x, axis=None):
    return view(x, lambda a: np.flip(a, axis))


def concat(arrays, axis=0):
    return apply(lambda *a: np.concatenate(a, axis), *arrays)


def stack(arrays, axis=0):
    return apply(lambda *a: np.stack(a, axis), *arrays)


def unstack(x, axis=0):
    return tuple(view(x, lambda a, i=i: np.moveaxis(a, axis, 0)[i, ...]) for i in range(x.shape[axis]))


def take(x, indices, axis=0):
    return apply(lambda a: np.take(a, indices.value, axis), x)


def matmul(x, y):
    return apply(np.matmul, x, y)


def astype(x, dtype):
    if dtype[0] != x.dtype[0] and dtype[0] != "c":
        raise Reject
    return apply(lambda a: a.astype(wide(dtype)), x, dtype=dtype)


def operator(f, swap=False):
    def call(self, other):
        return f(other, self) if swap else f(self, other)

    return call


def in_place(f):
    def call(self, other):
        f(self, other)  # for its own checks of the domain
        return write(self, other, lambda a, b: IN_PLACE[f](a, b))

    return call


IN_PLACE = {
    add: lambda a, b: a + b, subtract: lambda a, b: a - b, multiply: lambda a, b: a * b, divide: lambda a, b: a / b,
    remainder: lambda a, b: a - np.floor(a / b) * b, floor_divide: lambda a, b: np.floor(a / b),
    pow: lambda a, b: a**b,
}  # fmt: skip

for _name, _f in [
    ("add", add), ("sub", subtract), ("mul", multiply), ("truediv", divide), ("mod", remainder),
    ("floordiv", floor_divide), ("pow", pow), ("matmul", matmul),
]:  # fmt: skip
    setattr(Tensor, f"__{_name}__", operator(_f))
    setattr(Tensor, f"__r{_name}__", operator(_f, swap=True))
    if _f in IN_PLACE:
        setattr(Tensor, f"__i{_name}__", in_place(_f))
Tensor.__neg__ = negative
Tensor.__gt__ = greater
globals()["bool"] = bool_


def directional(x, order, signs_of):
    """The derivative of a scalar along `order` directions, from its neighbours, which `signs_of(order)` orders."""
    total = np.longdouble(0)
    for position, signs in signs_of(order):
        total += np.prod(signs) * x.near[position]
    return total / (2 * np.longdouble(STEPS[order])) ** order


def neighbours_of(orders):
    """All sign patterns, by order, in the order in which the neighbours stand."""
    return [(n, signs) for n in orders for signs in itertools.product((1, -1), repeat=n)]
