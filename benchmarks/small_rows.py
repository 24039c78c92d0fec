"""The rows of `run.py small`: one statement each over the whole public surface, at up to three sizes, by family.

A statement names its library `xp`. The names it may use are those of `inputs`, of matching shapes.
"""

import re
import sys
from dataclasses import dataclass

from rows import NAMES, Entry, Goal, Row

ALIASES = {"hyalite": "hl", "numpy": "np", "torch": "torch", "jax": "jnp", "mlx": "mx"}
NO_CALL = "has no such call"
BOUND_TORCH = 1.0  # nothing is slower than PyTorch's
BOUND_MEAN = 0.4  # the geometric mean over all rows, against NumPy
VISIT = 0.003  # seconds one timed loop should take: there are many rows
ALL = (0, 8, 256)  # elements; 0 is a 0-d array, of one
ARRAYS = (8, 256)
SIDES = {0: (1, 1), 8: (2, 4), 256: (16, 16)}  # of the matrix with so many elements


@dataclass
class Small:
    """One statement. `spelled` holds the libraries that write it otherwise, or None for one that has no such call.

    `reference` is NumPy's expression for the value, where that is not the statement itself; `result` is where a
    statement that is no expression leaves it. `values` is false where only the shape is fixed.
    """

    name: str
    statement: str
    sizes: tuple[int, ...]
    reference: str | None
    result: str
    spelled: dict[str, str | None]
    values: bool


@dataclass
class Family:
    """Rows with one goal: the bound on Hyalite's time over NumPy's."""

    name: str
    bound: float | None
    rows: list[Small]
    records: bool = False  # `a` requires grad, where the library has that
    plain: bool = False  # the value is Python's own: there is nothing to wait for


def row(name, statement, sizes=ALL, reference=None, result="", values=True, **spelled):
    return Small(name, statement, sizes, reference, result, spelled, values)


ELEMENTWISE = [
    row("add", "a + b"),
    row("subtract", "a - b"),
    row("multiply", "a * b"),
    row("divide", "a / b"),
    row("negative", "-a"),
    row("abs", "abs(a)"),
    row("add_integers", "i + j"),
    row("add_function", "xp.add(a, b)"),
    row("maximum_function", "xp.maximum(a, b)"),
    row("abs_function", "xp.abs(a)"),
    row("square_function", "xp.square(a)"),
    row("floor_function", "xp.floor(a)"),
    row("where_function", "xp.where(p, a, b)"),
    row("clip_function", "xp.clip(a, -0.5, 0.5)"),
    row("clip_method", "a.clip(-0.5, 0.5)", mlx=None),
    row("round_method", "a.round()"),
]

SCALAR = [
    row("add_one", "a + 1"),
    row("subtract_half", "a - 0.5"),
    row("twice", "2.0 * a"),
    row("power_two", "a ** 2"),
    row("reciprocal", "1 / a"),
    row("floor_divide", "a // 2"),
    row("remainder_integers", "i % 3"),
    row("maximum_zero", "xp.maximum(a, 0.0)", torch="torch.clamp_min(a, 0.0)"),
    row("where_zero", "xp.where(p, a, 0.0)"),
]

COMPARISON = [
    row("greater_zero", "a > 0"),
    row("less", "a < b"),
    row("equal", "a == b"),
    row("and", "p & q"),
    row("invert", "~p"),
    row("logical_and_function", "xp.logical_and(p, q)"),
    row("isnan_function", "xp.isnan(a)"),
]

BROADCAST = [
    row("add_outer", "a + a[:, None]", (8,)),
    row("add_row", "m + v", ARRAYS),
    row("add_column", "m + c", ARRAYS),
    row("add_zero_d", "a + z", ARRAYS),
]

# Factors of -1, and sums that stay finite: a value that overflows would make NumPy warn.
IN_PLACE = [
    row("iadd", "a += b", reference="a + b", result="a"),
    row("imultiply_scalar", "a *= -1.0", reference="-a", result="a"),
    row("iadd_row", "m += v", ARRAYS, reference="m + v", result="m"),
]

CAST = [
    row("to_float64", "a.astype(xp.float64)", torch="a.to(torch.float64)", jax=None, mlx=None),
    row("to_int32", "a.astype(xp.int32)", torch="a.to(torch.int32)"),
    row("to_bool", "a.astype(xp.bool)", torch="a.to(torch.bool)", mlx="a.astype(mx.bool_)"),
    row("from_int32", "i.astype(xp.float32)", torch="i.to(torch.float32)"),
    row("astype_function", "xp.astype(a, xp.int32)", torch=None, mlx=None),
]

REDUCTION = [
    row("sum", "a.sum()"),
    row("sum_function", "xp.sum(a)"),
    row("mean", "a.mean()"),
    row("max", "a.max()"),
    row("min", "a.min()"),
    row("prod", "b.prod()"),
    row("any", "p.any()"),
    row("all", "p.all()"),
    row("argmax", "a.argmax()"),
    row("sum_axis_0", "m.sum(axis=0)", ARRAYS),
    row("sum_axis_1", "xp.sum(m, axis=1)", ARRAYS),
    row("max_axis_0", "m.max(axis=0)", ARRAYS, torch="m.amax(axis=0)"),
    row("mean_keepdims", "m.mean(axis=1, keepdims=True)", ARRAYS),
]

TRANSCENDENTAL = [
    row("exp", "xp.exp(a)"),
    row("log", "xp.log(b)"),
    row("tanh", "xp.tanh(a)"),
    row("sin", "xp.sin(a)"),
    row("sqrt", "xp.sqrt(b)"),
    row("power", "b ** a"),
    row("sigmoid", "xp.sigmoid(a)", ALL, "1 / (1 + np.exp(-a))", numpy=None, jax="jax.nn.sigmoid(a)"),
    row(
        "softmax",
        "xp.softmax(a, axis=-1)",
        ARRAYS,
        "np.exp(a) / np.exp(a).sum()",
        numpy=None,
        torch="torch.softmax(a, dim=-1)",
        jax="jax.nn.softmax(a, axis=-1)",
    ),
]

MATMUL = [
    row("vector_vector", "a @ b", ARRAYS),
    row("matrix_vector", "m @ v", ARRAYS),
    row("matrix_matrix", "m @ w", ARRAYS),
    row("matmul_function", "xp.matmul(m, w)", (256,)),
]

VIEW = [
    row("reshape", "a.reshape(2, -1)", ARRAYS),
    row("reshape_function", "xp.reshape(a, (-1, 1))"),
    row("ravel", "m.reshape(-1)", ARRAYS),
    row("transpose", "m.T", ARRAYS),
    row("permute_dims", "xp.permute_dims(m, (1, 0))", ARRAYS, torch="torch.permute(m, (1, 0))"),
    row("moveaxis", "xp.moveaxis(m, 0, 1)", ARRAYS),
    row("expand_dims", "xp.expand_dims(a, 0)", torch="torch.unsqueeze(a, 0)"),
    row("squeeze", "xp.squeeze(c, axis=1)", ARRAYS),
    row("broadcast_to", "xp.broadcast_to(z, (2, 4))", (0,)),
    row("flip", "xp.flip(a, axis=0)", ARRAYS, torch="torch.flip(a, (0,))"),
]

SLICE = [
    row("slice_range", "a[1:5]", ARRAYS),
    row("slice_step", "a[::2]", ARRAYS),
    row("slice_reversed", "a[::-1]", ARRAYS, torch=None),
    row("slice_matrix", "m[1:3, 2:4]", ARRAYS),
    row("slice_column", "m[:, 1]", ARRAYS),
    row("index_row", "m[1]", ARRAYS),
    row("newaxis", "a[..., None]"),
]

# NumPy gives a scalar there, which is no array.
INTEGER = [
    row("index", "a[2]", ARRAYS),
    row("index_last", "a[-1]", ARRAYS),
    row("index_matrix", "m[1, 2]", ARRAYS),
]

INDEX_ARRAY = [
    row("index_mask", "a[p]", ARRAYS, mlx=None),
    row("index_integers", "a[k]", ARRAYS),
    row("take", "xp.take(a, k)", ARRAYS),
]

SET_ITEM = [
    row("set_index", "a[0] = 1.0", ARRAYS, "np.append(1.0, a[1:])", "a", jax="a = a.at[0].set(1.0)"),
    row("set_slice", "a[1:3] = 0", ARRAYS, "np.append([a[0], 0, 0], a[3:])", "a", jax="a = a.at[1:3].set(0)"),
    row("set_mask", "a[p] = 0.0", ARRAYS, "np.where(p, 0, a)", "a", jax="a = a.at[p].set(0.0)"),
]

CREATION = [
    row("zeros", "xp.zeros({shape})"),
    row("zeros_dtype", "xp.zeros({shape}, dtype=xp.int32)"),
    row("ones", "xp.ones({shape})"),
    row("full", "xp.full({shape}, 1.5)"),
    row("empty", "xp.empty({shape})", values=False),
    row("arange", "xp.arange({n})", ARRAYS),
    row("linspace", "xp.linspace(0.0, 1.0, {n})", ARRAYS),
    row("eye", "xp.eye({side})", ARRAYS),
    row("zeros_like", "xp.zeros_like(a)"),
    row("from_list", "xp.asarray(l)", ALL, "a", torch="torch.tensor(l)"),
    # NumPy's own asarray gives the array back.
    row("from_numpy", "xp.asarray(o)", ALL, "a", numpy=None, torch="torch.from_numpy(o)"),
    row("from_numpy_copy", "xp.array(o)", ALL, "a", hyalite="hl.asarray(o, copy=True)", torch="torch.tensor(o)"),
    row("copy", "a.copy()", torch="a.clone()", mlx="mx.array(a)"),
    row("concat", "xp.concat((a, b))", ARRAYS),
    row("stack", "xp.stack((a, b))"),
]

QUERY = [
    row("item", "a.item()", (0,)),
    row("float", "float(a)", (0,)),
    row("bool", "bool(p)", (0,)),
    row("tolist", "a.tolist()"),
    row("len", "len(a)", (8,)),
    row("shape", "a.shape", (8,)),
    row("ndim", "a.ndim", (8,)),
    row("to_numpy", "a.numpy()", ALL, "a", numpy=None, jax="np.asarray(a)", mlx="np.array(a)"),
]

# JAX and MLX record no call: they transform a function, `g` here.
GRADIENT = [
    row("record_add", "a + b", ALL, "a + b", numpy=None, jax=None, mlx=None),
    row(
        "backward",
        "a.grad = None; (a * b).sum().backward()",
        ALL,
        "b",
        "a.grad",
        numpy=None,
        jax="g(a, b)",
        mlx="g(a, b)",
    ),
]

FAMILIES = [
    Family("elementwise", 0.35, ELEMENTWISE),
    Family("scalar", 0.35, SCALAR),
    Family("comparison", 0.35, COMPARISON),
    Family("broadcast", 0.35, BROADCAST),
    Family("in_place", 0.35, IN_PLACE),
    Family("reduction", 0.35, REDUCTION),
    Family("transcendental", 0.6, TRANSCENDENTAL),
    Family("matmul", 0.6, MATMUL),
    Family("view", 1.0, VIEW),
    Family("slice", 1.0, SLICE),
    Family("integer_index", 1.5, INTEGER),
    Family("index_array", 1.0, INDEX_ARRAY),
    Family("set_item", 1.0, SET_ITEM),
    Family("cast", 1.0, CAST),
    Family("creation", 1.0, CREATION),
    # Half of an attribute's time is the loop's own: what is within a tenth is the same.
    Family("query", 1.1, QUERY, plain=True),
    Family("gradient", None, GRADIENT, records=True),
]


def inputs(np, size):
    """The arrays: a, b > 0 float32; p, q bool; i, j int32; k indices; m, w matrices; v a row, c a column; z 0-d."""
    generator = np.random.default_rng(7)
    shape, sides = (size,) if size else (), SIDES[size]
    a = np.asarray(generator.standard_normal(shape), np.float32)
    b = np.asarray(generator.uniform(0.5, 1.5, shape), np.float32)
    i, j = (np.asarray(generator.integers(-9, 10, shape), np.int32) for _ in "ij")
    m, w = (generator.standard_normal(s, dtype=np.float32) for s in (sides, sides[::-1]))
    v, c = m[0].copy(), m[:, :1].copy()
    k = np.asarray(generator.integers(0, max(size, 1), shape), np.int64)
    z = np.asarray(0.75, np.float32)
    return {
        "a": a, "b": b, "p": np.asarray(a > 0), "q": np.asarray(b > 1), "i": i, "j": j, "k": k,
        "m": m, "w": w, "v": v, "c": c, "z": z,
    }  # fmt: skip


def _others(size):
    """What a statement may name beside the arrays: `o` NumPy's `a`, `l` the same as a list, and `g` a gradient."""

    def names(arrays):
        import numpy

        o = inputs(numpy, size)["a"]
        found = {"o": o, "l": o.tolist(), "np": numpy}
        jax, mlx = (sys.modules.get(name) for name in ("jax", "mlx.core"))
        kind = type(arrays["a"]).__module__
        if jax and kind.startswith("jax"):
            found |= {"jax": jax, "g": jax.grad(lambda a, b: (a * b).sum())}
        if mlx and kind.startswith("mlx"):
            found |= {"g": mlx.grad(lambda a, b: (a * b).sum())}
        return found

    return names


def _is_expression(text):
    try:
        compile(text, "row", "eval")
    except SyntaxError:
        return False
    return True


def _entry(family, small, size, library):
    statement = small.spelled.get(library, small.statement)
    if statement is None:
        return Entry(NAMES[library], library, (), missing=NO_CALL)
    statement = re.sub(r"\bxp\b", ALIASES[library], statement)
    return Entry(
        NAMES[library],
        library,
        (_sized(statement, size),),
        lazy=family.plain,
        extra=_others(size),
        records=family.records and library in ("hyalite", "torch"),
        result="" if _is_expression(statement) else small.result,
    )


def _sized(statement, size):
    return statement.format(shape=f"({size},)" if size else "()", n=size, side=SIDES[size][0])


def _row(family, small, size):
    entries = [_entry(family, small, size, library) for library in ALIASES]
    goals = [Goal("<=", BOUND_TORCH, "PyTorch")] if small.spelled.get("torch", "") is not None else []
    if small.spelled.get("numpy", "") is not None:
        goals.insert(0, Goal("<=", family.bound, "NumPy"))
    expected = small.reference or re.sub(r"\bxp\b", "np", small.spelled.get("numpy", small.statement))
    return Row(
        key=f"{small.name}@{size}",
        title=f"`{entries[0].expressions[0]}`, {f'{size} elements' if size else '0-d'}",
        unit="ns",
        inputs=lambda np: inputs(np, size),
        entries=entries,
        goals=goals,
        reference=_sized(expected, size),
        rtol=1e-4,
        visit=VISIT,
        family=family.name,
        values=small.values,
    )


def small_rows():
    """Every row at each of its sizes, in the order of the families."""
    return [_row(family, small, size) for family in FAMILIES for small in family.rows for size in small.sizes]
