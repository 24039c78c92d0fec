"""The rows of `./dev bench compiled`: whole functions, each as its library compiles it."""

from rows import BIG, SIDE, Entry, Goal, Row, normal

BATCH, INPUTS, HIDDEN, CLASSES = 256, 64, 256, 10

# One text for all libraries: `m` is the module, `a`, `b`, ... the arrays.
CHAIN = "m.tanh(a * b + a) * m.exp(-b * b) + 0.5 * a"
CHEAP = "a"
for _ in range(4):
    CHEAP = f"(({CHEAP}) * b + a - b)"
FUNCTIONS = {
    "chain": ("`tanh(a*b+a)*exp(-b*b)+0.5*a`, 16.7M float32", "a, b", CHAIN, (BIG, BIG), 0.4),
    "cheap": ("twelve cheap ops in a row, 16.7M float32", "a, b", CHEAP, (BIG, BIG), 0.6),
    "softmax": ("softmax over rows, 4096 x 4096 float32", "a", "softmax(a)", ((SIDE, SIDE),), 0.6),
    "layer_norm": (
        "layer norm over rows, 4096 x 4096 float32", "a",
        "(a - rows(a)) / m.sqrt(rows((a - rows(a)) ** 2) + 1e-5)", ((SIDE, SIDE),), 0.6,
    ),
    "standardise": ("`(a - mean) / std`, 16.7M float32", "a", "(a - m.mean(a)) / m.sqrt(m.mean((a - m.mean(a)) ** 2))",
                    ((SIDE, SIDE),), 0.6),
    "column_sum": ("`sum(a * b, axis=0)`, 4096 x 4096 float32", "a, b", "columns(a * b)", ((SIDE, SIDE), (SIDE, SIDE)),
                   0.6),
}  # fmt: skip


def helpers(library):
    """What is spelled otherwise in each library."""
    if library == "torch":
        import torch

        return {
            "m": torch, "softmax": lambda x: torch.softmax(x, -1), "columns": lambda x: torch.sum(x, 0),
            "rows": lambda x: torch.mean(x, -1, keepdim=True),
        }  # fmt: skip
    if library == "jax":
        import jax
        import jax.numpy as jnp

        return {
            "m": jnp, "softmax": jax.nn.softmax, "columns": lambda x: jnp.sum(x, axis=0),
            "rows": lambda x: jnp.mean(x, axis=-1, keepdims=True),
        }  # fmt: skip
    if library in ("numpy", "numba"):
        import numpy as np

        def softmax(x):
            e = np.exp(x - x.max(axis=-1, keepdims=True))
            return e / e.sum(axis=-1, keepdims=True)

        return {
            "m": np, "softmax": softmax, "columns": lambda x: np.sum(x, axis=0, dtype=np.float64),
            "rows": lambda x: np.mean(x, axis=-1, keepdims=True, dtype=np.float64),
        }  # fmt: skip
    import hyalite as hl

    return {
        "m": hl, "softmax": hl.softmax, "columns": lambda x: hl.sum(x, axis=0),
        "rows": lambda x: hl.mean(x, axis=-1, keepdims=True),
    }  # fmt: skip


def function(library, names, text, compiled):
    """The statement's `f`, made when the row is measured: libraries are imported by then."""

    def make(_):
        f = eval(f"lambda {names}: {text}", helpers(library))
        if compiled and library == "hyalite":
            import hyalite as hl

            f = hl.compile(f)
        elif compiled and library == "jax":
            import jax

            f = jax.jit(f)
        elif compiled and library == "torch":
            import torch

            f = torch.compile(f)
        elif compiled and library == "numba":
            import numba

            f = numba.njit(parallel=True)(f)
        return {"f": f}

    return make


def numexpr_text(text):
    return text.replace("m.", "")


def statement(key):
    title, names, text, shapes, bound = FUNCTIONS[key]
    call = (f"f({names})",)
    entries = [
        Entry("Hyalite", "hyalite", call, extra=function("hyalite", names, text, True)),
        Entry("Hyalite, op by op", "hyalite", call, variant=True, extra=function("hyalite", names, text, False)),
        Entry("NumPy", "numpy", call, extra=function("numpy", names, text, False)),
        Entry("PyTorch", "torch", call, extra=function("torch", names, text, False)),
        Entry("torch.compile", "torch", call, extra=function("torch", names, text, True)),
        Entry("JAX jit", "jax", call, extra=function("jax", names, text, True)),
    ]
    if key in ("chain", "cheap"):
        entries.append(Entry("numexpr", "numexpr", (f"ne.evaluate({numexpr_text(text)!r})",)))
        entries.append(Entry("numba", "numba", call, extra=function("numba", names, text, True)))
    chain = [Goal("<=", bound, "JAX jit"), Goal("<=", 0.3, "torch.compile")]
    return Row(
        key=key,
        title=title,
        unit="ms",
        inputs=lambda np: normal(np, *shapes),
        reference=f"f({names})",
        names=function("numpy", names, text, False)(None),
        entries=entries,
        goals=chain if key == "chain" else [Goal("<=", bound, "best peer")],
        rtol=1e-3,
    )


def network(library, compiled=False):
    """`f(a, b, c, d)`: the loss of a two-layer network, and with it the squares of its gradients, as one number."""

    def make(_):
        if library == "hyalite":
            import hyalite as hl

            def loss(w1, w2, x, y):
                return -hl.mean(hl.sum(hl.log_softmax(hl.relu(x @ w1) @ w2) * y, axis=1))

            def f(w1, w2, x, y):
                value, (g1, g2) = hl.value_and_grad(loss, argnums=(0, 1))(w1, w2, x, y)
                return value + hl.sum(g1 * g1) + hl.sum(g2 * g2)

            return {"f": hl.compile(f)}
        if library == "jax":
            import jax
            import jax.numpy as jnp

            def loss(w1, w2, x, y):
                return -jnp.mean(jnp.sum(jax.nn.log_softmax(jax.nn.relu(x @ w1) @ w2) * y, axis=1))

            def f(w1, w2, x, y):
                value, (g1, g2) = jax.value_and_grad(loss, argnums=(0, 1))(w1, w2, x, y)
                return value + jnp.sum(g1 * g1) + jnp.sum(g2 * g2)

            return {"f": jax.jit(f)}
        import torch

        def f(w1, w2, x, y):
            w1, w2 = w1.requires_grad_(True), w2.requires_grad_(True)
            value = -(torch.log_softmax(torch.relu(x @ w1) @ w2, -1) * y).sum(1).mean()
            g1, g2 = torch.autograd.grad(value, (w1, w2))
            return value + (g1 * g1).sum() + (g2 * g2).sum()

        return {"f": torch.compile(f) if compiled else f}

    return make


def network_inputs(np):
    arrays = normal(np, (INPUTS, HIDDEN), (HIDDEN, CLASSES), (BATCH, INPUTS))
    arrays = {k: a * (0.1 if k in "ab" else 1.0) for k, a in arrays.items()}
    return arrays | {"d": np.eye(CLASSES, dtype=np.float32)[np.arange(BATCH) % CLASSES]}


def network_reference(np, w1, w2, x, y):
    w1, w2, x, y = (np.asarray(v, dtype=np.float64) for v in (w1, w2, x, y))
    h = x @ w1
    r = np.maximum(h, 0)
    s = r @ w2
    p = np.exp(s - s.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    ds = (p - y) / BATCH
    g2, g1 = r.T @ ds, x.T @ ((ds @ w2.T) * (h > 0))
    return np.float32(-np.mean(np.sum(np.log(p) * y, axis=1)) + (g1 * g1).sum() + (g2 * g2).sum())


def _network():
    call = ("f(a, b, c, d)",)
    return Row(
        key="network",
        title="value_and_grad of a network 64-256-10, batch 256, float32",
        unit="ms",
        inputs=network_inputs,
        reference="f(np, a, b, c, d)",
        names={"f": network_reference},
        entries=[
            Entry("Hyalite", "hyalite", call, extra=network("hyalite")),
            Entry("PyTorch", "torch", call, extra=network("torch")),
            Entry("torch.compile", "torch", call, extra=network("torch", True)),
            Entry("JAX jit", "jax", call, extra=network("jax")),
        ],
        goals=[Goal("<=", 0.6, "best peer")],
        rtol=1e-3,
        settle=0.06,
    )


def _small():
    return Row(
        key="call",
        title="a compiled `a + b`, 8 float32, against `hl.add(a, b)`",
        unit="ns",
        inputs=lambda np: normal(np, 8, 8),
        reference="a + b",
        entries=[
            Entry("Hyalite", "hyalite", ("f(a, b)",), extra=function("hyalite", "a, b", "a + b", True)),
            Entry("eager", "hyalite", ("hl.add(a, b)",), variant=True),
            Entry("JAX jit", "jax", ("f(a, b)",), extra=function("jax", "a, b", "a + b", True)),
        ],
        goals=[Goal("<=", 2.0, "eager")],
    )


def first_call(library, text):
    """The statement's `f`: what a library makes of a function that it has not seen, and the call."""

    def make(_):
        names = helpers(library)
        fresh = lambda: eval(f"lambda a, b: {text}", names)  # noqa: E731
        if library == "jax":
            import jax

            return {"f": lambda a, b: jax.jit(fresh())(a, b)}
        import hyalite as hl

        # Programs of a kind begin in tier 1 once the process has the code; of a new one, tier 0 is first.
        return {"f": lambda a, b: hl.compile(fresh(), tier=0)(a, b)}

    return make


def _first(key, title, size, unit, peer, bound):
    text = FUNCTIONS["chain"][2]
    entries = [
        Entry("Hyalite", "hyalite", ("f(a, b)",), extra=first_call("hyalite", text)),
        Entry("eager", "hyalite", ("f(a, b)",), variant=True, extra=function("hyalite", "a, b", text, False)),
    ]
    if peer == "JAX jit":
        entries.append(Entry("JAX jit", "jax", ("f(a, b)",), extra=first_call("jax", text)))
    return Row(
        key=key, title=title, unit=unit, inputs=lambda np: normal(np, size, size), reference="f(a, b)",
        names=function("numpy", "a, b", text, False)(None), entries=entries, goals=[Goal("<=", bound, peer)], rtol=1e-3,
    )  # fmt: skip


def compiled_rows():
    """Every row of the table, in its order."""
    first = [
        _first("first", "the chain's first result, 16.7M float32, against eager", BIG, "ms", "eager", 1.2),
        _first("first_small", "the chain's first result, 1000 float32", 1000, "ms", "JAX jit", 0.02),
    ]
    return [*map(statement, FUNCTIONS), _network(), _small(), *first]
