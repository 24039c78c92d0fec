"""compile: whole functions as a few fused kernels, and what there is to see of them."""

from . import _C

__all__ = ["Plan", "compile"]


def compile(f=None, /, *, max_recompiles=64):
    """A function that runs `f` as one plan of fused kernels, with the same bits.

    At the first call with tensors of new dtypes, ranks or sizes `f` runs once without values, and what it asks for
    becomes a plan; from then on calls run the plan, without Python. Arguments and results are tensors in lists, tuples
    and dicts of any depth, and other values, which are constants of the plan: for another value `f` is traced again.

    Tensors that `f` reaches by other names are read anew at each call; in-place updates and gradients left on tensors
    happen at each call, in their order. Other effects, such as print(), happen only while `f` is traced.

    Args:
        f: the function; without it, a decorator is returned.
        max_recompiles: signatures (dtypes, ranks, structure, constants; not sizes) after which a call with yet another
            raises.

    Returns:
        CompiledFunction: called like `f`, with `plan()`, `source()`, `explain()` and `cache()`.

    Raises:
        Unsupported: `f` asks for a value (`item`, `if`), keeps a value back, or needs too many signatures.
    """
    if f is None:
        return lambda f: compile(f, max_recompiles=max_recompiles)
    if not callable(f):
        raise TypeError(f"compile(): f must be a function, not {type(f).__name__}")
    if isinstance(max_recompiles, bool) or not isinstance(max_recompiles, int) or max_recompiles < 1:
        raise ValueError(f"compile(): max_recompiles must be an integer of 1 or more, not {max_recompiles!r}")
    compiled = _C._compiled(f, max_recompiles)
    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        if (value := getattr(f, name, None)) is not None:
            setattr(compiled, name, value)
    return compiled


class Plan:
    """What a compiled function does: steps in their order, each one kernel or one call of an op."""

    def __init__(self, record, name):
        self._record, self.name = record, name

    @property
    def steps(self):
        """A dict a step: name, fused, reason, source, shape, bytes_read, bytes_written, nodes."""
        return self._record["steps"]

    @property
    def kernels(self):
        """How many steps there are."""
        return len(self.steps)

    @property
    def nodes(self):
        """How many ops they stand for."""
        return self._record["nodes"]

    @property
    def temporary_bytes(self):
        """The most memory that values between the steps take at one time, in bytes."""
        return self._record["temporary_bytes"]

    def assert_kernels(self, n):
        """Raises AssertionError, with the plan, unless there are `n` steps."""
        if self.kernels != n:
            raise AssertionError(f"{self.kernels} kernels, not {n}:\n{self}")

    def __str__(self):
        lines = [f"{self.name}: {self.nodes} ops in {self.kernels} kernels, {self.temporary_bytes} bytes between them"]
        for i, step in enumerate(self.steps):
            kind = "fused" if step["fused"] else "call"
            lines.append(
                f"{i:3}  {kind:5}  {step['name']}  {step['shape']}  reads {step['bytes_read']}, writes "
                f"{step['bytes_written']} bytes; {step['reason']}"
            )
        return "\n".join(lines)

    __repr__ = __str__


def _last(self):
    plans = _C._plans(self)
    if not plans:
        raise ValueError(f"{self.__name__} has not been called yet, so there is no plan; call it once")
    return plans[0]


def _plan(self):
    """The plan of the last call."""
    return Plan(_last(self), self.__name__)


def _source(self):
    """The kernels of the last call as text: each value, the op that makes it, and the line that asked for it."""
    parts = []
    for i, step in enumerate(_last(self)["steps"]):
        parts.append(f"# {i}: {step['name']}\n" + (step["source"] if step["fused"] else "a call of the eager op\n"))
    return "\n".join(parts)


def _explain(self):
    """The plan and the source of the last call, as text."""
    return f"{_plan(self)}\n\n{_source(self)}"


def _cache(self):
    """Counts: signatures, traces, hits, and plans that are kept."""
    return _C._compile_counts(self)


_C.CompiledFunction.plan = _plan
_C.CompiledFunction.source = _source
_C.CompiledFunction.explain = _explain
_C.CompiledFunction.cache = _cache
