"""The rows of the table: what is computed, by which statement in which library, and the goal."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import native

BIG = 1 << 24  # 16.7M elements: 64 MiB of float32, past every cache
SIDE = 4096
HALF = 1 << 23


@dataclass
class Goal:
    """`bound` times the value of `against` (an entry's label, "floor", "best peer"), or an absolute bound if None."""

    relation: str
    bound: float
    against: str | None

    def text(self, unit):
        symbol = f"{self.relation} {self.bound:g}"
        return f"{symbol} {unit}" if self.against is None else f"{symbol}x {self.against}"


@dataclass
class Entry:
    """One measured statement; `expressions` are tried in order, the first whose names exist is taken."""

    label: str
    library: str
    expressions: tuple[str, ...]
    lazy: bool = False  # leave the value unevaluated, or it is Python's own
    variant: bool = False  # not an ordinary `a + b`: never the best peer
    extra: Callable[[dict], dict] | None = None  # further names, from the library's arrays
    records: bool = False  # the first input requires grad
    result: str = ""  # where a statement that is no expression leaves its value
    missing: str = ""  # why this library has no figure, where that is known


@dataclass
class Row:
    """One line of the table. `work` is in bytes or operations, for the units that are rates."""

    key: str
    title: str
    unit: str
    inputs: Callable[[Any], dict]
    entries: list[Entry]
    goals: list[Goal]
    reference: str  # NumPy's expression, whose value every other entry must give
    work: float = 0
    rtol: float = 1e-5
    floor: tuple[int, int] | None = None  # pattern and bytes for native.Floor
    contiguous: bool = False
    settle: float = 0.0  # seconds between two peers
    visit: float = 0.006  # seconds one timed loop should take
    family: str = ""  # the rows that it is averaged with
    values: bool = True  # false where only the shape of the result is fixed
    names: dict = field(default_factory=dict)  # that the reference uses beside NumPy and the arrays

    @property
    def higher_is_better(self):
        return self.unit in ("GB/s", "GFLOP/s")

    def value(self, seconds):
        """Seconds in the row's unit."""
        if self.higher_is_better:
            return self.work / seconds * 1e-9
        return seconds * {"ns": 1e9, "ms": 1e3}[self.unit]


NAMES = {"numpy": "NumPy", "torch": "PyTorch", "jax": "JAX", "mlx": "MLX", "numexpr": "numexpr", "hyalite": "Hyalite"}


def same(expression, *libraries, **other):
    """Entries with the same expression in several libraries, then those whose expressions differ."""
    spelled = {key: (expression,) for key in libraries}
    spelled |= {key: (e,) if isinstance(e, str) else e for key, e in other.items()}
    order = [key for key in NAMES if key in spelled]
    order.sort(key=lambda key: key != "hyalite")
    return [Entry(NAMES[key], key, spelled[key]) for key in order]


def normal(np, *shapes):
    """Standard normal float32 arrays named a, b, ..., the same in every run."""
    generator = np.random.default_rng(7)
    return {chr(ord("a") + i): generator.standard_normal(s, dtype=np.float32) for i, s in enumerate(shapes)}


def uniform(np, *shapes):
    generator = np.random.default_rng(7)
    return {chr(ord("a") + i): generator.random(s, dtype=np.float32) for i, s in enumerate(shapes)}


def like(arrays):
    import numpy

    return {"o": numpy.zeros_like(arrays["a"])}


def torch_like(arrays):
    return {"o": arrays["a"].clone()}


def int_add():
    return Entry("floor", "python", ("i + j",), variant=True, extra=lambda _: {"i": 12345, "j": 67890})


def _small():
    entries = same("a + b", "hyalite", "numpy", "torch", "jax")
    entries += [Entry("MLX", "mlx", ("a + b",), lazy=True, variant=True), Entry("MLX, evaluated", "mlx", ("a + b",))]
    return Row(
        key="add_small",
        title="`a + b`, 8 float32",
        unit="ns",
        inputs=lambda np: normal(np, 8, 8),
        reference="a + b",
        entries=[*entries, int_add()],
        goals=[Goal("<=", 0.35, "NumPy")],
    )


def _small_grad():
    return Row(
        key="add_small_grad",
        title="`a + b`, 8 float32, one input requires grad (NumPy: plain)",
        unit="ns",
        inputs=lambda np: normal(np, 8, 8),
        reference="a + b",
        entries=[
            Entry("Hyalite", "hyalite", ("a + b",), records=True),
            Entry("NumPy", "numpy", ("a + b",)),
            Entry("PyTorch", "torch", ("a + b",), records=True),
            int_add(),
        ],
        goals=[Goal("<=", 0.7, "NumPy"), Goal("<=", 0.12, "PyTorch")],
    )


def _large():
    entries = same("a + b", "hyalite", "numpy", "torch", "jax", "mlx", numexpr="ne.evaluate('a + b')")
    entries += [
        Entry("NumPy out=", "numpy", ("np.add(a, b, out=o)",), variant=True, extra=like),
        Entry("PyTorch out=", "torch", ("torch.add(a, b, out=o)",), variant=True, extra=torch_like),
        Entry("numexpr out=", "numexpr", ("ne.evaluate('a + b', out=o)",), variant=True, extra=like),
    ]
    return Row(
        key="add_large",
        title="`a + b`, 16.7M float32 (3 arrays counted)",
        unit="GB/s",
        inputs=lambda np: normal(np, BIG, BIG),
        reference="a + b",
        entries=entries,
        goals=[Goal(">=", 0.9, "floor"), Goal(">=", 2.0, "NumPy")],
        work=12 * BIG,
        floor=(native.ADD, 12 * BIG),
    )


def _exp():
    return Row(
        key="exp",
        title="`exp(a)`, 16.7M float32",
        unit="ms",
        inputs=lambda np: normal(np, BIG),
        reference="np.exp(a)",
        entries=same(
            "",
            hyalite="hl.exp(a)",
            numpy="np.exp(a)",
            torch="torch.exp(a)",
            jax="jnp.exp(a)",
            mlx="mx.exp(a)",
            numexpr="ne.evaluate('exp(a)')",
        ),
        goals=[Goal("<=", 0.4, "NumPy")],
        floor=(native.COPY, 8 * BIG),
    )


def _sum():
    return Row(
        key="sum",
        title="`sum(a)`, 16.7M float32",
        unit="ms",
        inputs=lambda np: uniform(np, BIG),
        reference="np.sum(a, dtype=np.float64)",
        entries=same(
            "",
            hyalite="hl.sum(a)",
            numpy="np.sum(a)",
            torch="torch.sum(a)",
            jax="jnp.sum(a)",
            mlx="mx.sum(a)",
            numexpr="ne.evaluate('sum(a)')",
        ),
        goals=[Goal("<=", 0.7, "NumPy"), Goal("<=", 1.0, "best peer")],
        rtol=1e-4,
        floor=(native.READ, 4 * BIG),
    )


def _transposed():
    return Row(
        key="transposed_copy",
        title="contiguous copy of `a.T`, 4096 x 4096 float32",
        unit="ms",
        inputs=lambda np: normal(np, (SIDE, SIDE)),
        reference="a.T",
        entries=same(
            "",
            hyalite=("hl.contiguous(a.T)", "a.T.contiguous()", "a.T.copy()", "hl.asarray(a.T, copy=True)"),
            numpy="np.ascontiguousarray(a.T)",
            torch="a.T.contiguous()",
            jax="jnp.transpose(a)",
            mlx="mx.contiguous(a.T)",
        ),
        goals=[Goal("<=", 0.06, "NumPy"), Goal("<=", 0.15, "best peer")],
        floor=(native.COPY, 8 * SIDE * SIDE),
        contiguous=True,
    )


def _strided():
    # Every line of both inputs is read, half of them used: 8 bytes an element of the result come in for each 4 needed.
    return Row(
        key="add_strided",
        title="`a[::2] + b[::2]`, 8.4M float32 each",
        unit="ms",
        inputs=lambda np: normal(np, HALF, HALF),
        reference="a[::2] + b[::2]",
        entries=same("a[::2] + b[::2]", "hyalite", "numpy", "torch", "jax", "mlx"),
        goals=[Goal("<=", 1.0, "NumPy")],
        floor=(native.ADD, 10 * HALF),
    )


def _broadcast(key, title, shape):
    return Row(
        key=key,
        title=title,
        unit="ms",
        inputs=lambda np: normal(np, (SIDE, SIDE), shape),
        reference="a + b",
        entries=same("a + b", "hyalite", "numpy", "torch", "jax", "mlx"),
        goals=[Goal("<=", 1.0, "NumPy")],
        floor=(native.COPY, 8 * SIDE * SIDE),
    )


def _matmul():
    n = 1024
    return Row(
        key="matmul",
        title="`a @ b`, 1024 x 1024 float32",
        unit="GFLOP/s",
        inputs=lambda np: normal(np, (n, n), (n, n)),
        reference="a @ b",
        entries=same("a @ b", "hyalite", "numpy", "torch", "jax", "mlx"),
        goals=[Goal(">=", 1.0, "best peer")],
        work=2 * n**3,
        rtol=1e-3,
        settle=0.06,  # OpenBLAS's threads spin for some 25 ms after a call, on the cores of the next peer
    )


def statement_rows():
    """Every row that is a statement, in the order of the table."""
    return [
        _small(),
        _small_grad(),
        _large(),
        _exp(),
        _sum(),
        _transposed(),
        _strided(),
        _broadcast("add_broadcast_row", "`a + b`, (4096, 4096) with (4096,)", (SIDE,)),
        _broadcast("add_broadcast_column", "`a + b`, (4096, 4096) with (4096, 1)", (SIDE, 1)),
        _matmul(),
    ]
