"""The engines that run a random program's text, and what tells whether they agree.

Hyalite itself, PyTorch behind a module of Hyalite's names, and program_reference, which differentiates by differences.
"""

import collections
import contextlib
import re
import types
import warnings

import numpy as np
import program_reference as reference

import hyalite as hl

try:
    import torch
except ImportError:
    torch = None


# ---- PyTorch behind Hyalite's names -----------------------------------------------------------------------------


def torch_module():
    """The functions that programs call, made of PyTorch's."""
    m = types.SimpleNamespace()
    for name in (
        "negative square exp expm1 sin cos tanh erf sigmoid relu sign floor round sqrt log log1p reciprocal "
        "abs add subtract multiply divide remainder pow maximum minimum copysign greater where matmul "
        "squeeze no_grad enable_grad float16 float32 float64 complex64 complex128 int64 bool"
    ).split():
        setattr(m, name, getattr(torch, name))
    functional = torch.nn.functional
    m.gelu = functional.gelu
    m.leaky_relu = lambda x, slope=0.01: functional.leaky_relu(x, slope)
    m.softmax = lambda x, axis=-1: torch.softmax(x, axis)
    m.log_softmax = lambda x, axis=-1: torch.log_softmax(x, axis)
    m.conj = lambda x: torch.conj(x).resolve_conj()
    m.contiguous = lambda x: x.clone(memory_format=torch.contiguous_format)
    m.positive = m.contiguous  # torch.positive gives the tensor itself
    m.tensor = lambda values, dtype=None, requires_grad=False: torch.tensor(values, dtype=dtype).requires_grad_(
        requires_grad
    )
    # torch.floor_divide has no derivative, not even zero.
    m.floor_divide = lambda x, y: torch.div(x, y, rounding_mode="floor")
    m.divmod = lambda x, y: (m.floor_divide(x, y), torch.remainder(x, y))
    m.clip = lambda x, low, high: torch.clip(x, low, high)
    axes = lambda x, axis: tuple(range(x.ndim)) if axis is None else axis  # noqa: E731
    m.sum = lambda x, axis=None, keepdims=False: torch.sum(x, axes(x, axis), keepdim=keepdims)
    m.mean = lambda x, axis=None, keepdims=False: torch.mean(x, axes(x, axis), keepdim=keepdims)
    m.max = lambda x, axis=None, keepdims=False: torch.amax(x, axes(x, axis), keepdim=keepdims)
    m.min = lambda x, axis=None, keepdims=False: torch.amin(x, axes(x, axis), keepdim=keepdims)
    m.prod = lambda x, axis=None, keepdims=False: (
        torch.prod(x) if axis is None else torch.prod(x, axis, keepdim=keepdims)
    )
    m.reshape = lambda x, shape: torch.reshape(x, shape)
    m.permute_dims = lambda x, order: torch.permute(x, order)
    m.matrix_transpose = lambda x: x.mT
    m.broadcast_to = lambda x, shape: x.expand(shape)
    m.expand_dims = lambda x, axis=0: torch.unsqueeze(x, axis)
    m.concat = lambda arrays, axis=0: torch.cat(arrays, axis)
    m.stack = lambda arrays, axis=0: torch.stack(arrays, axis)
    m.unstack = lambda x, axis=0: torch.unbind(x, axis)
    m.take = lambda x, indices, axis=0: torch.index_select(x, axis, indices)
    m.astype = lambda x, dtype: x.to(dtype, copy=True)
    return m


# ---- what programs call besides: hooks, and the end of a program ------------------------------------------------


class Scaled:
    """A hook that gives back a multiple."""

    def __init__(self, factor):
        self.factor = factor

    def __call__(self, gradient):
        return gradient * self.factor


def big(shape, seed):
    return np.random.default_rng(seed).uniform(0.3, 2.0, size=shape).tolist()


def helpers(module):
    """The names a program may use besides `hl`; the same text for every engine."""
    log = []

    def watch(name):
        def hook(gradient):
            log.append((name, gradient.detach() * 1))

        return hook

    def complex_(x):
        return x.dtype in (module.complex64, module.complex128)

    def second(leaves, probes):
        """The sum of the leaves' gradients times the probes, as the next thing to differentiate; clears them."""
        total = None
        for leaf, probe in zip(leaves, probes):
            g, leaf.grad = leaf.grad, None
            if g is not None:
                part = module.sum(module.conj(g) * probe).real if complex_(probe) else module.sum(g * probe)
                total = part if total is None else total + part
        return total if total is not None and total.requires_grad else None

    return {"big": big, "hl": module, "scaled": Scaled, "watch": watch, "second": second, "log": log}


HELPERS_TEXT = """
import hyalite as hl
import numpy as np
log = []
def big(shape, seed): return np.random.default_rng(seed).uniform(0.3, 2.0, size=shape).tolist()
def scaled(c): return lambda g: g * c
def watch(name): return lambda g: log.append((name, g.detach() * 1))
def second(leaves, probes):
    total = None
    for leaf, probe in zip(leaves, probes):
        g, leaf.grad = leaf.grad, None
        if g is not None:
            complex_ = probe.dtype in (hl.complex64, hl.complex128)
            part = hl.sum(hl.conj(g) * probe).real if complex_ else hl.sum(g * probe)
            total = part if total is None else total + part
    return total if total is not None and total.requires_grad else None
"""


def set_neighbours(leaf, directions, orders):
    """The leaf's values at all signed steps along its directions: probes first, the last one is the check's own."""
    leaf.near = []
    for n, signs in reference.neighbours_of(orders):
        chosen = [*directions[: n - 1], directions[2]]
        step = np.longdouble(reference.STEPS[n])
        leaf.near.append(sum(s * step * np.asarray(d, dtype=leaf.value.dtype) for s, d in zip(signs, chosen)))
        leaf.near[-1] = np.array(leaf.near[-1], dtype=leaf.value.dtype).reshape(leaf.value.shape)


# ---- running ----------------------------------------------------------------------------------------------------


def run(program, module, lines=None):
    """The names a program leaves behind, and for each line that raised its exception."""
    env = helpers(module)
    failed = {}
    for i, line in enumerate(program.lines if lines is None else lines):
        try:
            exec(line, env)
        except Exception as error:  # noqa: BLE001 - whatever it is, the engines are to agree on it
            failed[i] = error
    return env, failed


def array(x):
    x = x.detach()
    return x.numpy(force=True) if torch is not None and isinstance(x, torch.Tensor) else x.numpy()


def gradient(x):
    return None if x.grad is None else array(x.grad)


def close(a, b, tolerance):
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape:
        return False
    scale = max(1.0, float(np.max(np.abs(b), initial=0.0, where=np.isfinite(b))))
    return bool(np.allclose(a, b, rtol=0, atol=tolerance * scale, equal_nan=True))


# What raises here and not in PyTorch, each with its reason: (a pattern of the message, a part of the line, why).
NAMED = [
    ("the root does not require grad", "backward", "a view made in no_grad is a constant; PyTorch calls it a leaf"),
    ("does not require grad", "register_hook", "a view made in no_grad is a constant; PyTorch calls it a leaf"),
    ("does not require grad", "retain_grad", "a view made in no_grad is a constant; PyTorch calls it a leaf"),
    ("MatmulBackward saved", "backward", "PyTorch multiplies, and keeps, a copy of an expanded operand"),
    ("DivmodBackward saved its output", "backward", "divmod keeps its quotient, which PyTorch's remainder makes again"),
    (
        "SignBackward saved x",
        "backward",
        "one formula for real and complex numbers, and the complex one reads the operand",
    ),
    (
        "(Reciprocal|Expm1|Tanh|Sigmoid|Softmax|LogSoftmax)Backward saved x",
        "backward",
        "the gradient reads the operand, where PyTorch's reads the rounded result and refuses writes of that",
    ),
    ("has stride 0", "", "PyTorch lets an assignment of a number, or of the tensor itself, through an expanded view"),
]


def compare_with_torch(program, lines=None):
    """None, or what differs: (kind, line or name, text)."""
    lines = program.lines if lines is None else lines
    ours, failed = run(program, hl, lines)
    theirs, refused = run(program, torch_module(), lines)
    for i in sorted({*failed, *refused}):
        if i in failed and i in refused and "backward" in lines[i]:
            return None  # PyTorch has added part of the gradients before it raised
        if i in failed and i not in refused:
            error = failed[i]
            if any(re.search(part, str(error)) and text in lines[i] for part, text, _ in NAMED):
                return None
            return ("raises", i, f"{type(error).__name__}: {error}")
        if i in refused and i not in failed:
            return ("torch raises", i, f"{type(refused[i]).__name__}: {refused[i]}")
    for name in ours:
        x, y = ours[name], theirs.get(name)
        if not isinstance(x, hl.Tensor) or not isinstance(y, torch.Tensor):
            continue
        if not close(array(x), array(y), program.tolerance):
            return ("value", name, f"{array(x).tolist()} against {array(y).tolist()}")
        # A view made in no_grad has no history here; PyTorch calls it a leaf if its base requires grad. What `//` gives
        # has no gradient here; PyTorch's is zero.
        if x.requires_grad != y.requires_grad and not re.search("no_grad|divmod|floor_divide", "".join(lines)):
            return ("requires_grad", name, f"{x.requires_grad} against {y.requires_grad}")
    for name in ours:
        x, y = ours[name], theirs.get(name)
        if not isinstance(x, hl.Tensor) or not isinstance(y, torch.Tensor):
            continue
        if name not in program.leaves and not any(f"{name}.retain_grad" in line for line in lines):
            continue
        g = gradient(x)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            h = gradient(y)
        if g is None and h is None:
            continue
        if g is None or h is None:
            if not close(0 * (h if g is None else g), h if g is None else g, program.tolerance):
                return ("gradient", name, f"{g} against {h}")
        elif not close(g, h, program.tolerance * 10):
            return ("gradient", name, f"{g.tolist()} against {h.tolist()}")
    for order in range(1, program.order):
        if f"g{order}" in ours and f"g{order}" in theirs:
            for n, g, h in zip(program.leaves, ours[f"g{order}"], theirs[f"g{order}"]):
                g, h = (0 if v is None else array(v) for v in (g, h))
                if not np.allclose(g, h, rtol=0, atol=10 * program.tolerance * max(1.0, np.max(np.abs(h), initial=0))):
                    return (
                        "gradient",
                        f"g{order} of {n}",
                        f"{np.asarray(g).tolist()} against {np.asarray(h).tolist()}",
                    )
    mine, other = ours["log"], theirs["log"]
    if len(mine) != len(other):
        return ("hooks", "log", f"{[n for n, _ in mine]} against {[n for n, _ in other]}")
    for kind in {n for n, _ in mine}:
        a = [array(g) for n, g in mine if n == kind]
        b = [array(g) for n, g in other if n == kind]
        if len(a) != len(b) or not all(close(g, h, 10 * program.tolerance) for g, h in zip(a, b)):
            return ("hooks", kind, f"{a} against {b}")
    return None


def compare_with_differences(program, lines=None, ends=None):
    """None, or what differs; what raises here is left to PyTorch to judge."""
    lines = program.lines if lines is None else lines
    ends = collections.Counter() if ends is None else ends
    ours, failed = run(program, hl, lines)
    orders = range(1, program.order + 1)
    signs = reference.neighbours_of(orders)
    reference.Mode.on, reference.Mode.neighbours = True, len(signs)
    env, agreed = helpers(reference), set()
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for i, line in enumerate(lines):
            if line.startswith(("loss1.backward", "g1 =")):
                break
            if i in failed:
                if isinstance(failed[i], hl.AutogradError) and re.search("leaf|does not require", str(failed[i])):
                    continue
                with contextlib.suppress(reference.Refused):
                    exec(line, env)
                    return ("raises", i, f"{type(failed[i]).__name__}: {failed[i]}")
                agreed.add(i)
                continue
            try:
                exec(line, env)
            except reference.Refused:
                return ("does not raise", i, line)
            except (reference.Reject, NameError, ValueError, IndexError, TypeError):
                return None
            for n in program.leaves:
                if line.startswith(f"{n} = "):
                    set_neighbours(env[n], program.directions[n], orders)
    for i, error in failed.items():
        if isinstance(error, hl.VersionMismatch):
            ends["raised"] += 1
            return None  # only PyTorch can say whether a gradient had to read what was overwritten
        if isinstance(error, hl.AutogradError) and re.search("leaf|does not require", str(error)):
            continue
        if i in agreed:
            continue
        return ("raises", i, f"{type(error).__name__}: {error}")
    for name, x in ours.items():
        if isinstance(x, hl.Tensor) and isinstance(env.get(name), reference.Tensor) and name != "loss1":
            if not close(array(x), env[name].value.astype(array(x).dtype), program.tolerance):
                return ("value", name, f"{array(x).tolist()} against {env[name].value.tolist()}")
    loss = env.get("loss1")
    if loss is None:
        return None
    for n in orders:
        positions = [(k, s) for k, (m, s) in enumerate(signs) if m == n]
        want = reference.directional(loss, n, lambda _, at=positions: at)
        want = float(want) * program.repeats
        grads = ours.get(f"g{n}") if n < program.order else [ours[x].grad for x in program.leaves]
        if grads is None:
            return None
        terms = [
            np.sum(np.real(np.conj(array(g)) * np.asarray(program.directions[x][2])))
            for x, g in zip(program.leaves, grads)
            if g is not None
        ]
        got = float(sum(terms))
        size = max(1.0, abs(want), float(sum(abs(t) for t in terms)))
        limit = max({1: 1e-6, 2: 1e-5, 3: 1e-3}[n], program.tolerance * 10)
        if not abs(got - want) <= limit * size:
            return ("gradient", f"order {n}", f"{got} against {want} along the check's direction")
    ends["compared"] += 1
    return None


def judge(program, lines=None, ends=None):
    """The first difference from what is right, by the strongest oracle there is for this program.

    `ends`, a Counter, is told what became of it.
    """
    ends = collections.Counter() if ends is None else ends
    if torch is not None and program.peer:
        found = compare_with_torch(program, lines)
        if found is None:
            ends["compared"] += 1
            return compare_forms(program, ends) if lines is None else None
        # What PyTorch makes of a permuted tensor is permuted too, and its reshape then copies where ours is a view.
        other_layout = "reshape" in "".join(program.lines) and found[0] in ("value", "gradient")
        if found[0] != "torch raises" and not other_layout:
            return found
    if not program.by_differences:
        ends["not judged"] += 1
        return None
    before = ends["compared"]
    found = compare_with_differences(program, lines, ends)
    if found is None and lines is None and ends["compared"] > before:
        return compare_forms(program, ends)
    return found


def compare_forms(program, ends):
    return compare_functions(program, ends) or compare_retried(program, ends)


# ---- the same program as a function -------------------------------------------------------------------------------


def as_function(program):
    """The program's own part as a function of its leaves that gives the loss, and the leaves' values."""
    body, leaves = [], {}
    for line in program.lines[: program.tail]:
        name = line.split(" = ")[0]
        if name in program.leaves and line.startswith(f"{name} = hl.tensor("):
            leaves[name] = line
        else:
            body += line.split("\n")
    text = f"def program({', '.join(leaves)}):\n    " + "\n    ".join(body) + "\n    return loss1\n"
    env = helpers(hl)
    exec(text, env)
    for line in leaves.values():
        exec(line, env)
    return env["program"], [env[n].detach() for n in leaves], list(leaves)


def inner(gradients, directions):
    return float(sum(np.sum(np.real(np.conj(array(g)) * np.asarray(d))) for g, d in zip(gradients, directions)))


def compare_functions(program, ends):
    """None, or what differs between the derivatives of the program as a function and its own backward."""
    text = "\n".join(program.lines[: program.tail])
    if re.search("hook|backward|[.]grad", text) or program.repeats != 1:
        return None
    ours, failed = run(program, hl)
    if failed or not ours["loss1"].requires_grad or ours["loss1"].is_leaf:
        return None
    f, leaves, names = as_function(program)
    if any(not np.array_equal(array(ours[n]), array(x)) for n, x in zip(names, leaves)):
        return None  # it writes its leaves in no_grad
    ends["as functions"] += 1
    numbers = tuple(range(len(names)))
    firsts = ours["g1"] if program.order > 1 else [ours[n].grad for n in names]
    firsts = dict(zip(program.leaves if program.order > 1 else names, firsts))
    firsts = [np.zeros(x.shape) if firsts[n] is None else array(firsts[n]) for n, x in zip(names, leaves)]
    versions = [x.version for x in leaves]
    value, gradient = hl.value_and_grad(f, numbers)(*leaves)
    written = versions != [x.version for x in leaves]  # in no_grad, with the values they had
    forms = {"value_and_grad": gradient, "grad": hl.grad(f, numbers)(*leaves)}
    out, pull = hl.vjp(f, *leaves)
    forms["vjp"] = pull(hl.ones((), dtype=out.dtype))
    again = pull(hl.ones((), dtype=out.dtype))
    forms["vjp, called again"] = again
    if hasattr(hl, "checkpoint") and not written:  # it refuses to run such a function twice
        forms["grad of checkpoint"] = hl.grad(lambda *x: hl.checkpoint(f, *x), numbers)(*leaves)
    loss = run(program, hl, program.lines[: program.tail])[0]
    found = hl.gradients(loss["loss1"], [loss[n] for n in names], allow_unused=True)
    forms["gradients"] = [x * 0 if g is None else g for g, x in zip(found, leaves)]
    for form, got in forms.items():
        for n, g, want in zip(names, got, firsts):
            if not close(array(g), want, program.tolerance):
                return ("function", f"{form} of {n}", f"{array(g).tolist()} against {want.tolist()}")
    for form, v in (("value_and_grad", value), ("vjp", out)):
        if not close(array(v), array(ours["loss1"]), program.tolerance):
            return ("function", f"value of {form}", f"{array(v)} against {array(ours['loss1'])}")
    directions = [program.directions[n][2] for n in names]
    if hasattr(hl, "jvp"):
        tangents = [hl.asarray(np.asarray(d)).astype(x.dtype) for d, x in zip(directions, leaves)]
        _, slope = hl.jvp(f, leaves, tangents)
        want = float(np.real(inner([hl.asarray(w) for w in firsts], directions)))
        if abs(slope.item() - want) > 10 * program.tolerance * max(1.0, abs(want)):
            return ("function", "jvp", f"{slope.item()} against {want}")
    if program.order > 1:
        probes = [program.directions[n][0] for n in names]

        def along(*x):
            parts = hl.grad(f, numbers)(*x)
            total = hl.zeros((), dtype=hl.float64)
            for g, p in zip(parts, probes):
                p = hl.asarray(np.asarray(p)).astype(g.dtype)
                part = hl.sum(hl.conj(g) * p)
                total = total + (part.real if g.dtype in (hl.complex64, hl.complex128) else part)
            return total

        seconds = hl.grad(along, numbers)(*leaves)
        kept = dict(zip(program.leaves, ours["g2"] if program.order > 2 else [ours[n].grad for n in program.leaves]))
        for n, g in zip(names, seconds):
            want = np.zeros(g.shape) if kept[n] is None else array(kept[n])
            if not close(array(g), want, 10 * program.tolerance):
                return ("function", f"grad of grad by {n}", f"{array(g).tolist()} against {want.tolist()}")
        crossed = {}
        if hasattr(hl, "jvp"):
            at = [hl.asarray(np.asarray(p)).astype(x.dtype) for p, x in zip(probes, leaves)]
            crossed["jvp of grad"] = hl.jvp(hl.grad(f, numbers), leaves, at)[1]
            crossed["grad of jvp"] = hl.grad(lambda *x: hl.jvp(f, x, at)[1], numbers)(*leaves)
        for form, got in crossed.items():
            for n, g in zip(names, got):
                want = np.zeros(g.shape) if kept[n] is None else array(kept[n])
                if not close(array(g), want, 10 * program.tolerance):
                    return ("function", f"{form} by {n}", f"{array(g).tolist()} against {want.tolist()}")
        small = all(x.size <= 6 and x.dtype in (hl.float32, hl.float64) for x in leaves)
        if small:
            blocks = hl.hessian(f, numbers)(*leaves)
            for i, n in enumerate(names):
                got = np.zeros(leaves[i].shape)
                for j, p in enumerate(probes):
                    got = got + np.tensordot(array(blocks[i][j]), np.asarray(p), np.ndim(p))
                want = np.zeros(got.shape) if kept[n] is None else array(kept[n])
                if not close(got, want, 10 * program.tolerance):
                    return ("function", f"hessian by {n}", f"{got.tolist()} against {want.tolist()}")
    return None


# ---- the same program, failing on its way -------------------------------------------------------------------------


class Flaky:
    """A hook that raises once."""

    def __init__(self):
        self.failed = False

    def __call__(self, gradient):
        if not self.failed:
            self.failed = True
            raise KeyError("on purpose")


def compare_retried(program, ends):
    """None, or what a backward that failed at some value, and was called again, leaves behind."""
    text = "\n".join(program.lines[: program.tail])
    if re.search("hook|backward|[.]grad", text):
        return None
    whole, failed = run(program, hl, [*program.lines[: program.tail], "loss1.backward()"])
    if failed:
        return None
    places = [n for n, x in whole.items() if isinstance(x, hl.Tensor) and x.requires_grad and n != "loss1"]
    for create_graph in (False, True):
        env, _ = run(program, hl, program.lines[: program.tail])
        for n in places:
            hook = Flaky()
            handle = env[n].register_hook(hook)
            try:
                env["loss1"].backward(create_graph=create_graph)
            except KeyError:
                ends["failed and retried"] += 1
                left = [x for x in program.leaves if env[x].grad is not None]
                if left:
                    return ("retry", n, f"a backward that failed at {n} filled the gradient of {left}")
            else:
                # Nothing reached that value; the walk is done, and its graph may be gone.
                env, _ = run(program, hl, program.lines[: program.tail])
                continue
            handle.remove()
        env["loss1"].backward(create_graph=create_graph)
        for x in program.leaves:
            g, want = env[x].grad, whole[x].grad
            if (g is None) != (want is None) or (g is not None and not np.array_equal(array(g), array(want))):
                return ("retry", x, f"{g} against {want} after failures at {places}")
    return None
