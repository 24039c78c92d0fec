"""compile: whole functions as a few fused kernels, and what there is to see of them."""

import math
import os

from . import _C, _tree

__all__ = ["Plan", "Verification", "compile", "verify"]


def compile(f=None, /, *, dynamic=True, max_recompiles=64, tier=None):
    """A function that runs `f` as one plan of fused kernels, with the same bits.

    At the first call with tensors of new dtypes, ranks or sizes `f` runs once without values, and what it asks for
    becomes a plan; from then on calls run the plan, without Python. Arguments and results are tensors in lists, tuples
    and dicts of any depth, and other values, which are constants of the plan: for another value `f` is traced again,
    which takes microseconds an op and makes no new kernel of generated code.

    Tensors that `f` reaches by other names are read anew at each call; in-place updates and gradients left on tensors
    happen at each call, in their order. Other effects, such as print(), happen only while `f` is traced. With arguments
    on a device that computes later, such as "opencl", `f` itself is called: its ops wait there, and are fused.

    Gradients of any order go through it. The first is a plan too; for one that is differentiated again
    (`create_graph=True`, `hl.hessian`) `f` is called once more, op by op: it must do the same, and write nothing.
    `compile` of the gradient, `hl.compile(hl.grad(f))`, makes a plan of all of it.

    Args:
        f: the function; without it, a decorator is returned.
        dynamic: whether sizes and numbers may be others from call to call; if not, each is a signature of its own.
        max_recompiles: signatures (dtypes, ranks, structure, and values that are no numbers) after which a call with
            yet another raises.
        tier: 0 runs the eager kernels over blocks in the cache, at once and always; 1 waits at the first call for code
            that LLVM generates; None begins with 0 and goes over to 1 when a thread in the background has compiled
            what calls have paid for. The bits are the same.

    Returns:
        CompiledFunction: called like `f`, with `plan()`, `source()`, `explain()` and `cache()`.

    Raises:
        Unsupported: `f` asks for a value (`item`, `if`), keeps a value back, or needs too many signatures; at a call
            with `tier=1`: there is no LLVM 19.
    """
    if f is None:
        return lambda f: compile(f, dynamic=dynamic, max_recompiles=max_recompiles, tier=tier)
    if not callable(f):
        raise TypeError(f"compile(): f must be a function, not {type(f).__name__}")
    if not isinstance(dynamic, bool):
        raise ValueError(f"compile(): dynamic must be True or False, not {dynamic!r}")
    if isinstance(max_recompiles, bool) or not isinstance(max_recompiles, int) or max_recompiles < 1:
        raise ValueError(f"compile(): max_recompiles must be an integer of 1 or more, not {max_recompiles!r}")
    if isinstance(tier, bool) or tier not in (None, 0, 1):
        raise ValueError(f"compile(): tier must be None, 0 or 1, not {tier!r}")
    compiled = _C._compiled(f, max_recompiles, dynamic, _default_tier() if tier is None else tier)
    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        if (value := getattr(f, name, None)) is not None:
            setattr(compiled, name, value)
    return compiled


def _default_tier():
    """-1, which is to decide by calls, or what HYALITE_TIER says."""
    named = os.environ.get("HYALITE_TIER", "")
    if named not in ("", "0", "1"):
        raise ValueError(f"HYALITE_TIER must be 0 or 1, not {named!r}")
    return int(named or -1)


class Verification:
    """What `verify` found. It is true if the plan gave the bits of the ops one by one on the CPU, in both tiers."""

    def __init__(self, differences, compared, devices=None):
        self.differences, self.compared = differences, compared
        self.devices = devices or {}

    def __bool__(self):
        return not self.differences

    def __str__(self):
        lines = [_difference_text(f"tier {d['tier']}", d) for d in self.differences] or [
            f"the same bits: {self.compared} values of the plan, each against its ops one by one"
        ]
        for name, found in self.devices.items():
            if found["problem"]:
                lines.append(f"{name} was not compared: {found['problem']}")
            elif not found["differences"]:
                lines.append(f"{name}: the same bits in {found['compared']} values of its plan")
            lines += [_difference_text(name, d) for d in found["differences"]]
        return "\n".join(lines)

    __repr__ = __str__


def _difference_text(way, d):
    where = f" ({d['line']})" if d["line"] else ""
    return (
        f"{way}, kernel {d['kernel']}, {d['op']}{where}: element {d['element']} is {d['plan']!r} and {d['eager']!r} op "
        f"by op, {d['ulp']} ULP apart; {d['count']} elements differ, by at most {d['largest_ulp']} ULP"
    )


def verify(f, /, *args, **kwargs):
    """Runs `f` as a plan, in tier 0 and tier 1 and on every device that is there, and op by op, and compares all bits.

    The arguments stay as they are; of tensors on a device that computes later, copies on the CPU are taken.

    Args:
        f: the function, or what `compile` made of it.
        *args: its arguments, as for a call.
        **kwargs: those by name.

    Returns:
        Verification: true if every value that the plan leaves in memory has the bits of the eager ops on the CPU. Else
        `differences` has a dict for each that has not, in the order of the plan: tier, kernel (its number), op, line,
        element (the first that differs), plan and eager (its values), ulp (between them), count and largest_ulp (of all
        elements that differ). The first names the group at fault. Without LLVM 19 there is no tier 1 to compare.
        `devices` has a dict for each other device: differences of the same form, without a tier, compared (how many
        values), and problem (why it could not compute this; else empty). Functions such as exp have other last bits
        there, and what is made of them more; a NaN is a NaN, whatever it carries.
    """
    compiled = f if isinstance(f, _C.CompiledFunction) else compile(f)
    args, kwargs = _tree.map_leaves(_here, args), _tree.map_leaves(_here, kwargs)
    pairs = _C._compare(compiled, args, kwargs, "cpu")
    found = [_difference(*pair) for pair in pairs]
    devices = {}
    for d in _C._devices():
        if d["lazy"] and d["available"]:
            devices[d["name"]] = _on_device(compiled, args, kwargs, d["name"])
    return Verification([d for d in found if d is not None], len(pairs), devices)


def _here(leaf):
    waits = isinstance(leaf, _C.Tensor) and leaf.device not in ("cpu", "meta")
    return leaf.to("cpu") if waits else leaf


def _on_device(compiled, args, kwargs, name):
    try:
        pairs = _C._compare(compiled, args, kwargs, name)
    except _C.Unsupported as error:
        return {"differences": [], "compared": 0, "problem": str(error)}
    found = [_difference(*pair, nans_alike=True) for pair in pairs]
    for d in found:
        if d is not None:
            del d["tier"]
    return {"differences": [d for d in found if d is not None], "compared": len(pairs), "problem": ""}


def _difference(tier, kernel, op, line, ours, theirs, nans_alike=False):
    count, at, ulp, largest = _C._bits_apart(ours, theirs, nans_alike)
    if count == 0:
        return None
    element = []
    for n in reversed(ours.shape):
        element.insert(0, at % n)
        at //= n
    element = tuple(element)
    return {
        "tier": tier, "kernel": kernel, "op": op, "line": line, "element": element, "plan": ours[element].item(),
        "eager": theirs[element].item(), "ulp": ulp, "count": count, "largest_ulp": largest,
    }  # fmt: skip


class Plan:
    """What a compiled function does: steps in their order, each one kernel or one call of an op.

    A kernel runs in tier 0, as the eager kernels over blocks in the cache, or in tier 1, as code that LLVM generated.
    """

    def __init__(self, record, name):
        self._record, self.name = record, name

    @property
    def steps(self):
        """A dict a step: name, fused, reason, source, shape, bytes_read, bytes_written, nodes.

        A kernel's has its tier, why_tier (why it is 0), generated (LLVM's text), functions (how many it calls),
        from_disk (how many of these an earlier process had compiled) and compile_seconds.
        """
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
    def bytes_moved(self):
        """What the steps read and write, each operand once a step, in bytes."""
        return self._record["bytes_moved"]

    @property
    def bytes_least(self):
        """Of that, what comes from outside and what goes there, each once: no other plan moves less, in bytes."""
        return self._record["bytes_least"]

    @property
    def calls(self):
        """How often it was called."""
        return self._record["calls"]

    @property
    def ready_seconds(self):
        """What it took to trace the function and to plan, and with `tier=1` to compile."""
        return self._record["ready_seconds"]

    @property
    def temporary_bytes(self):
        """The most memory that values between the steps take at one time, in bytes."""
        return self._record["temporary_bytes"]

    def assert_kernels(self, n):
        """Raises AssertionError, with the plan, unless there are `n` steps."""
        if self.kernels != n:
            raise AssertionError(f"{self.kernels} kernels, not {n}:\n{self}")

    def __str__(self):
        lines = [
            f"{self.name}: {self.nodes} ops in {self.kernels} kernels, {self.temporary_bytes} bytes between them; "
            f"{self.bytes_moved} bytes read and written, {self.bytes_least} the least possible"
        ]
        for i, step in enumerate(self.steps):
            kind = f"fused, tier {step['tier']}" if step["fused"] else "call"
            lines.append(
                f"{i:3}  {kind:13}  {step['name']}  {step['shape']}  reads {step['bytes_read']}, writes "
                f"{step['bytes_written']} bytes; {step['reason']}{_tier_text(step)}"
            )
        return "\n".join(lines)

    __repr__ = __str__


def _tier_text(step):
    if not step["fused"]:
        return ""
    if step["tier"] == 0:
        return f"; {step['why_tier']}" if step["why_tier"] else ""
    made = "read from disk" if step["from_disk"] == step["functions"] else "compiled"
    return f"; {step['functions']} generated, {made} in {1e3 * step['compile_seconds']:.1f} ms"


def _last(self):
    plans = _C._plans(self)
    if not plans:
        raise ValueError(f"{self.__name__} has not been called yet, so there is no plan; call it once")
    return plans[0]


def _plan(self):
    """The plan of the last call."""
    return Plan(_last(self), self.__name__)


def _source(self, form="steps"):
    """The kernels of the last call as text.

    The form is "steps" for each value, the op that makes it, and the line that asked for it; "llvm" for the text that
    was generated for tier 1; "assembly" for its machine code.
    """
    if form not in ("steps", "llvm", "assembly"):
        raise ValueError(f'source(): form must be "steps", "llvm" or "assembly", not {form!r}')
    parts = []
    for i, step in enumerate(_last(self)["steps"]):
        if not step["fused"]:
            text = "a call of the eager op\n"
        elif form == "steps":
            text = step["source"]
        elif step["tier"] == 0:
            text = f"nothing is generated: {step['why_tier']}\n"
        else:
            text = step["generated"] if form == "llvm" else _C._machine_code(self, i)
        parts.append(f"# {i}: {step['name']}\n{text}")
    return "\n".join(parts)


def _explain(self, *args, **kwargs):
    """The plan and the source of the last call, as text.

    With arguments, those of a call with these, and what compiling gains: for about half a second the plan and its ops
    one by one take turns, over copies of all memory, so that nothing is written and `f` itself does not run again.
    """
    gains = _gains(self, *_C._measure(self, args, kwargs, 0.5)) if args or kwargs else ""
    return f"{_plan(self)}\n{gains}\n{_source(self)}"


def _gains(self, call, ops, rounds):
    plan = _plan(self)
    text = (
        f"a call takes {_time(call)}, its ops one by one {_time(ops)} (medians of {rounds}, in turns, without Python's "
        f"part); it was made ready in {_time(plan.ready_seconds)} and has been called {plan.calls} times: "
    )
    if call >= ops:
        return text + "it does not pay\n"
    return f"{text}it pays after call {math.ceil(plan.ready_seconds / (ops - call))}\n"


def _time(seconds):
    factor, unit = (1, "s") if seconds >= 1 else (1e3, "ms") if seconds >= 1e-3 else (1e6, "µs")
    return f"{seconds * factor:.3g} {unit}"


def _cache(self):
    """Counts: signatures, traces, hits, and plans that are kept (entries).

    `generated` has what LLVM has made in this process, for all functions: kernels compiled, kernels found on disk
    (from_disk) and in memory, compile_seconds, the folder on disk, and what is wrong with it (folder_problem).
    """
    return {**_C._compile_counts(self), "generated": _C._generated_counts()}


_C.CompiledFunction.plan = _plan
_C.CompiledFunction.source = _source
_C.CompiledFunction.explain = _explain
_C.CompiledFunction.cache = _cache
