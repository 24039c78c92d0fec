"""Random differentiable programs: a seeded generator, and a shrinker.

A program is lines of Python over a module called `hl`; program_engines runs them and judges. Run as a script this
prints one program, or compares many: `python programs.py SEED [COUNT]`.
"""

import contextlib
import inspect
import os
import re
import sys
import warnings

import numpy as np
import program_reference as reference
from program_engines import HELPERS_TEXT, big, helpers, judge, set_neighbours, torch

import hyalite as hl

# ---- programs ---------------------------------------------------------------------------------------------------


class Program:
    """Lines of text, the names of its leaves, and what differences need to know."""

    def __init__(self, seed):
        self.seed, self.lines, self.leaves, self.order = seed, [], [], 1
        self.real_loss = True
        self.by_differences = True  # False where only PyTorch can judge (backward inside, hooks that square)
        self.peer = True  # False where PyTorch lacks the form (negative steps)
        self.directions = {}
        self.tolerance = 1e-8

    def script(self):
        return HELPERS_TEXT + "\n".join(self.lines) + "\n"


def literal(values, dtype):
    values = np.asarray(values)
    if values.size > 60:
        return f"hl.tensor(big({values.shape}, {SEEDS[values.tobytes()]}), dtype=hl.{dtype})"
    return f"hl.tensor({np.asarray(values).tolist()}, dtype=hl.{dtype})"


SEEDS = {}  # what a long literal was made from
NAMES = {"f4": "float32", "f8": "float64", "c16": "complex128"}
UNARY = (
    "negative positive square exp expm1 sin cos tanh erf gelu sigmoid relu sign floor round sqrt log log1p "
    "reciprocal abs leaky_relu contiguous"
).split()
BINARY = "+ - * / % ** maximum minimum copysign floor_divide".split()
IN_PLACE = "+= -= *= /= %= **= *= *=".split()


class Generator:
    """Writes a program line by line; each line is first tried on the reference, which refuses what it cannot judge."""

    def __init__(self, seed, wild=None, length=None):
        self.rng = np.random.default_rng(seed)
        self.program = Program(seed)
        self.count = 0
        r = self.rng
        self.wild = (r.random() < 0.3 if wild is None else wild) and torch is not None
        self.length = length or int(r.integers(3, 14))
        self.dtype = r.choice(["f8", "f8", "f8", "f4"])
        self.complex = r.random() < 0.15
        self.program.order = int(r.choice([1, 1, 2, 2, 3]))
        self.hooked = self.created = False
        self.written = set()
        self.with_steps = r.random() < 0.15

    # -- small helpers

    def pick(self, options):
        return options[int(self.rng.integers(len(options)))]

    def name(self):
        self.count += 1
        return f"v{self.count}"

    def shape(self):
        return tuple(int(n) for n in self.rng.integers(1, 4, size=self.rng.choice([0, 1, 1, 2, 2, 2, 3])))

    def values(self, shape, dtype=None):
        dtype = dtype or self.dtype
        if np.prod(shape, dtype=int) > 60:
            seed = int(self.rng.integers(1000))
            v = np.array(big(shape, seed))
            SEEDS[v.tobytes()] = seed
            return v
        v = self.rng.uniform(0.3, 2.0, size=shape) * self.rng.choice([-1, 1, 1], size=shape)
        if dtype[0] == "c":
            v = v + 1j * self.rng.uniform(-1.5, 1.5, size=shape)
        return np.round(v, 2)

    def tensors(self, test=lambda t: True):
        return [n for n, t in self.env.items() if isinstance(t, reference.Tensor) and t.dtype != "b1" and test(t)]

    def recent(self, test=lambda t: True):
        """A name, the later the likelier."""
        names = self.tensors(test)
        if not names:
            return None
        weights = 1.25 ** np.arange(len(names))
        return str(self.rng.choice(names, p=weights / weights.sum()))

    def like(self, x, exact=False):
        """An operand that broadcasts with x, or has its very shape and dtype."""
        want = self.env[x]

        def fits(t):
            if (
                exact
                and (t.dtype, want.dtype) in (("f4", "f8"), ("f8", "c16"))
                and self.broadcasts(t.shape, want.shape, into=True)
            ):
                return t.ndim > 0
            if t.dtype != want.dtype:
                return not exact and t.ndim > 0 and want.ndim > 0 and self.broadcasts(t.shape, want.shape)
            return self.broadcasts(t.shape, want.shape, into=exact)

        if self.rng.random() < 0.75:
            found = self.recent(fits)
            if found:
                return found
        if self.rng.random() < 0.3:
            return str(self.pick([2.0, -1.5, 0.5, 3]))
        shape = want.shape if self.rng.random() < 0.6 or exact else self.broadcastable(want.shape)
        return literal(self.values(shape, want.dtype), NAMES[want.dtype])

    @staticmethod
    def broadcasts(a, b, into=False):
        try:
            out = np.broadcast_shapes(a, b)
        except ValueError:
            return False
        return (not into or out == b) and int(np.prod(out)) <= 48

    def broadcastable(self, shape):
        out = [1 if self.rng.random() < 0.4 else n for n in shape]
        return tuple(out[int(self.rng.integers(0, len(out) + 1)) :]) if out else ()

    # -- lines

    def add(self, text, force=False):
        """Keeps a line if the reference takes it. True when it did."""
        saved = {n: t for n, t in self.env.items()}
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                exec(text, self.env)
        except reference.Refused:
            self.env.update(saved)
            if self.rng.random() < 0.15:
                self.program.lines.append(text)
                return True
            return False
        except (reference.Reject, ValueError, TypeError, IndexError, ZeroDivisionError, NameError, OverflowError):
            self.env.clear()
            self.env.update(saved)
            return False
        self.program.lines.append(text)
        # PyTorch writes over what it still has to read, and a write in no_grad gives all views a new history.
        self.program.peer = self.program.peer and not reference.Mode.overlap and not self.two_modes()
        return True

    def two_modes(self):
        unrecorded = [t for t in self.program.lines if "no_grad" in t]
        if any("hook" in t for t in self.program.lines) and unrecorded:
            return True
        return any(re.search(r" = ", t) for t in unrecorded) and any(
            re.search(r"[*+/%-]= |\] = ", t) for t in unrecorded
        )

    def key(self, shape, write=False):
        parts = []
        for n in shape:
            kind = self.rng.random()
            if kind < 0.3:
                parts.append(":")
            elif kind < 0.5:
                parts.append(str(int(self.rng.integers(-n, n))))
            elif kind < 0.75:
                parts.append(f"{int(self.rng.integers(0, n))}:")
            elif kind < 0.85:
                parts.append(f":{int(self.rng.integers(1, n + 1))}")
            elif self.with_steps:
                parts.append(self.pick(["::-1", "::-2", "::2"]))
                self.program.peer = self.program.peer and "-" not in parts[-1]
            else:
                parts.append("::2")
            if self.rng.random() < 0.1:
                break
        if not write and self.rng.random() < 0.1:
            parts.insert(int(self.rng.integers(len(parts) + 1)), "None")
        if self.rng.random() < 0.05:
            parts.append("...")
        return ", ".join(parts) or "..."

    def view_text(self, x):
        t = self.env[x]
        n = t.ndim
        kinds = ["slice", "slice", "slice", "reshape", "expand", "detach"]
        if n:
            kinds += ["T" if n == 2 else "permute", "permute", "broadcast", "unstack"]
        if n >= 2:
            kinds += ["mT"]
        if 1 in t.shape:
            kinds += ["squeeze"]
        if t.dtype == "c16":
            kinds += ["real", "imag"]
        kind = self.pick(kinds)
        if kind == "slice":
            return f"{x}[{self.key(t.shape)}]"
        if kind == "reshape":
            return f"hl.reshape({x}, {self.factors(t.size)})"
        if kind == "expand":
            return f"hl.expand_dims({x}, {int(self.rng.integers(0, n + 1))})"
        if kind == "permute":
            return f"hl.permute_dims({x}, {tuple(int(a) for a in self.rng.permutation(n))})"
        if kind == "broadcast":
            return f"hl.broadcast_to({x}, {(int(self.rng.integers(1, 4)),) + t.shape})"
        if kind == "unstack":
            return f"hl.unstack({x}, axis={int(self.rng.integers(n))})[0]"
        if kind == "squeeze":
            return f"hl.squeeze({x}, {t.shape.index(1)})"
        if kind == "detach":
            return f"{x}.detach()"
        return f"{x}.{kind}"

    def factors(self, size):
        out = []
        for p in (2, 3, 2, 3):
            if size % p == 0 and self.rng.random() < 0.5:
                out.append(p)
                size //= p
        out.append(size)
        return tuple(out)

    def op_text(self):
        kind = self.rng.random()
        x = self.recent()
        t = self.env[x]
        if t.dtype == "c16" and kind < 0.3:
            return self.pick([f"hl.conj({x})", f"hl.abs({x})", f"hl.square({x})", f"hl.multiply({x}, {x})", f"-{x}"])
        if kind < 0.3:
            name = self.pick(UNARY)
            extra = ", slope=0.2" if name == "leaky_relu" else ""
            return f"-{x}" if name == "negative" else f"hl.{name}({x}{extra})"
        if kind < 0.62:
            op, y = self.pick(BINARY), self.like(x)
            if op[0].isalpha():
                return f"hl.{op}({x}, {y})" if "hl." in y or y.startswith("v") else f"hl.{op}({x}, {x} * {y})"
            if op == "**" and self.rng.random() < 0.5:
                y = self.pick(["2", "3", "0.5", "2.0"])
            return f"{y} {op} {x}" if self.rng.random() < 0.3 else f"{x} {op} {y}"
        if kind < 0.76:
            name = self.pick(["sum", "mean", "prod", "max", "min", "softmax", "log_softmax"])
            if t.ndim == 0:
                return f"hl.{name}({x})" if "soft" not in name else f"hl.sin({x})"
            axis = int(self.rng.integers(-t.ndim, t.ndim))
            if "soft" in name:
                return f"hl.{name}({x}, axis={axis})"
            if self.rng.random() < 0.25:
                return f"hl.{name}({x})"
            if t.ndim > 1 and name != "prod" and self.rng.random() < 0.25:
                axis = (0, t.ndim - 1)
            return f"hl.{name}({x}, axis={axis}, keepdims={bool(self.rng.random() < 0.4)})"
        if kind < 0.82:
            y = self.like(x)
            return f"hl.where(hl.greater({x}, {self.pick([0.1, 0.7])}), {x}, {y})"
        if kind < 0.88:
            if t.ndim >= 1:
                k = t.shape[-1]
                shape = self.pick([(k,), (k, 2), (k, 3)])
                other = self.recent(lambda o: o.ndim and o.dtype == t.dtype and o.shape[-min(o.ndim, 2)] == k)
                if other is None or self.rng.random() < 0.3:
                    other = literal(self.values(shape, t.dtype), NAMES[t.dtype])
                return f"{x} @ {other}"
        if kind < 0.93:
            y = self.recent(lambda o: o.shape == t.shape and o.dtype == t.dtype)
            name = self.pick(["concat", "stack"])
            if t.ndim or name == "stack":
                return f"hl.{name}([{x}, {y}, {x}], axis={int(self.rng.integers(t.ndim + (name == 'stack')))})"
        if kind < 0.94 and t.ndim and t.dtype != "c16":
            return f"{x}[{x}.detach() > {self.pick([0.1, 0.5])}]"
        if kind < 0.96 and t.ndim:
            axis = int(self.rng.integers(t.ndim))
            index = [int(i) for i in self.rng.integers(0, t.shape[axis], size=3)]
            if self.rng.random() < 0.5:
                return f"{x}[{[i for i in index]}]" if axis == 0 else f"{x}[:{', :' * (axis - 1)}, {index}]"
            return f"hl.take({x}, hl.tensor({index}, dtype=hl.int64), axis={axis})"
        if kind < 0.98:
            if self.complex and t.dtype == "f8":
                return f"hl.astype({x}, hl.complex128)"
            return f"hl.astype({x}, hl.{self.pick(['float32', 'float64'])})"
        return f"hl.clip({x}, {self.pick(['-0.7', 'None'])}, {self.pick(['0.9', '1.5'])})"

    def in_mode(self, text):
        kind = self.rng.random()
        if kind < 0.72:
            return text
        if kind < 0.9:
            return f"with hl.no_grad(): {text}"
        if kind < 0.95:
            return f"with hl.enable_grad(): {text}"
        return f"with hl.no_grad():\n    with hl.enable_grad(): {text}"

    def line(self):
        kind = self.rng.random()
        r = self.rng.random
        if kind < 0.07 and len(self.program.leaves) < 4:
            return self.leaf()
        if kind < 0.3:
            return self.add(self.in_mode(f"{self.name()} = {self.view_text(self.recent())}"))
        if kind < 0.62:
            if r() < 0.08:
                x = self.recent(lambda t: t.dtype != "c16")
                q, m = self.name(), self.name()
                return x is not None and self.add(f"{q}, {m} = hl.divmod({x}, {self.like(x)})")
            name = self.name()
            text = f"{name} = {self.op_text()}"
            if r() < 0.06:
                text = f"with hl.no_grad(): {text}"
            kept = self.add(text)
            if kept and r() < 0.1 and self.may_hook(name):
                self.add(f"{name}.register_hook(scaled({self.pick([2.0, 0.5, -1.0])}))")
            return kept
        if kind < 0.88:
            return self.write_line()
        if self.wild:
            return self.wild_line()
        return False

    def may_hook(self, name):
        """Whether a replacement at this value means the same for every engine.

        At the second order a hook also sees what formulas that read a result send there, and which formulas do so
        is each engine's own affair; those of the ops below read at most their operands.
        """
        line = next((t for t in self.program.lines if t.startswith(f"{name} = ")), "")
        linear = re.match(r"v\d+ = (\S+ [-+*@] |hl\.(sum|mean|concat|stack|where)\()", line)
        return name not in self.written and (linear or (self.program.order == 1 and not self.created))

    def write_line(self):
        x = self.recent()
        t = self.env[x]
        if self.rng.random() < 0.65:
            op = self.pick(IN_PLACE)
            y = self.pick([self.like(x, exact=True)] * 4 + [x, f"hl.sin({x})" if t.dtype != "c16" else x])
            if op == "**=":
                y = self.pick(["2", "3", y])
            text = f"{x} {op} {y}"
        else:
            if t.ndim == 0:
                key = "..."
            else:
                key = self.key(t.shape, write=True)
                kind = self.rng.random()
                if kind < 0.2:
                    axis = int(self.rng.integers(t.ndim))
                    # Each place once: which of two writes is the last PyTorch leaves open.
                    index = sorted({int(i) for i in self.rng.integers(0, t.shape[axis], size=2)})
                    index = f"hl.tensor({index}, dtype=hl.int64)" if kind < 0.07 else str(index)
                    key = ":, " * axis + index
                elif kind < 0.32 and t.dtype != "c16":
                    key = f"{x}.detach() > {self.pick([0.1, 0.5, 5])}"
            if self.rng.random() < 0.2:
                value = str(self.pick([0.5, 2.0, 1.25]))
            else:
                try:
                    part = eval(f"{x}[{key}]", self.env).shape
                except (IndexError, reference.Reject):
                    return False
                y = self.recent(lambda o: o.dtype == t.dtype and self.broadcasts(o.shape, part, into=True))
                value = y if y and self.rng.random() < 0.8 else literal(self.values(part, t.dtype), NAMES[t.dtype])
            if self.rng.random() < 0.25:
                text = f"{x}[{key}] {self.pick(['+=', '*=', '-='])} {value}"
            else:
                text = f"{x}[{key}] = {value}"
        if self.rng.random() < 0.12:
            text = f"with hl.no_grad(): {text}"
        self.written.add(x)
        return self.add(text)

    def wild_line(self):
        """What differences cannot judge."""
        kind = self.rng.random()
        x = self.recent(lambda t: t.dtype != "c16")
        if x is None:
            return False
        if kind < 0.35:
            if not self.may_hook(x):
                return False
            self.hooked = True
            hooks = [f"watch('{x}')", "scaled(0.5)", "lambda g: g * g", "lambda g: None", "lambda g: g.detach()"]
            hook = hooks[int(self.rng.integers(5 if self.program.order == 1 else 2))]
            text = f"{x}.register_hook({hook})"
        elif kind < 0.6:
            create = self.rng.random() < 0.3 and not self.hooked
            self.created = self.created or create
            only = f", inputs=[{self.pick(self.program.leaves)}]" if INPUTS and self.rng.random() < 0.3 else ""
            text = f"hl.sum({x}).backward({'create_graph' if create else 'retain_graph'}=True{only})"
        elif kind < 0.63:
            t = self.env[x]
            text = f"{x}.backward({literal(self.values(t.shape, t.dtype), NAMES[t.dtype])}, retain_graph=True)"
        elif kind < 0.66:
            leaf = self.pick(self.program.leaves)
            t = self.env[leaf]
            text = f"{leaf}.grad = {literal(self.values(t.shape, t.dtype), NAMES[t.dtype])}"
        elif kind < 0.69:
            text = f"with hl.no_grad(): {self.pick(self.program.leaves)}.grad *= 0.5"
        elif kind < 0.72:
            leaf = self.pick(self.program.leaves)
            text = f"{leaf}.requires_grad_(True)"
        elif kind < 0.75:
            text = f"{self.pick(self.program.leaves)}.grad = None"
        elif kind < 0.8:
            leaf = self.pick(self.program.leaves)
            text = f"{self.name()} = {leaf}.grad * 0.5"
        elif kind < 0.9 and RETAIN:
            text = f"{x}.retain_grad()"
        else:
            if not self.may_hook(x):
                return False
            y = self.name()
            text = f"{y} = {x} * 1.5"
            self.program.lines.append(f"h{y} = {x}.register_hook(scaled(3.0))")
            self.program.lines.append(text)
            self.program.lines.append(f"h{y}.remove()")
            self.program.by_differences = False
            return True
        self.program.by_differences = False
        self.program.lines.append(text)
        return True

    def leaf(self):
        if self.rng.random() < 0.03:
            return self.big_leaf()
        name = f"x{len(self.program.leaves)}"
        dtype = "c16" if self.complex and self.rng.random() < 0.5 else self.dtype
        shape = self.shape()
        values = self.values(shape, dtype)
        direction = [self.values(shape, dtype) for _ in range(3)]
        if dtype == "f4":
            values = values.astype(np.float32)
            values = np.round(values.astype(np.float64), 3)
        text = f"{name} = hl.tensor({values.tolist()}, dtype=hl.{NAMES[dtype]}, requires_grad=True)"
        exec(text, self.env)
        set_neighbours(self.env[name], direction, self.orders)
        self.program.lines.append(text)
        self.program.leaves.append(name)
        self.program.directions[name] = direction
        return True

    def big_leaf(self):
        """A leaf that passes the sizes at which loops are cut into pieces."""
        name = f"x{len(self.program.leaves)}"
        shape, seed = self.pick([(1500,), (40, 50), (3, 700)]), int(self.rng.integers(1000))
        direction = [self.values(shape, "f8") for _ in range(3)]
        text = f"{name} = hl.tensor(big({shape}, {seed}), dtype=hl.float64, requires_grad=True)"
        exec(text, self.env)
        set_neighbours(self.env[name], direction, self.orders)
        self.program.lines.append(text)
        self.program.leaves.append(name)
        self.program.directions[name] = direction
        return True

    # -- the whole

    def make(self):
        p = self.program
        self.orders = range(1, p.order + 1)
        self.signs = reference.neighbours_of(self.orders)
        reference.Mode.on, reference.Mode.neighbours, reference.Mode.overlap = True, len(self.signs), False
        helper = helpers(reference)
        self.env = helper
        self.leaf()
        if self.rng.random() < 0.5:
            self.leaf()
        kept = tries = 0
        while kept < self.length and tries < 8 * self.length:
            tries += 1
            with contextlib.suppress(ValueError):  # a choice among the elements of an empty tensor
                kept += bool(self.line())
        self.loss()
        return p

    def loss(self):
        p, r = self.program, self.rng
        names = self.tensors()
        chosen = {n for n in names if r.random() < 0.35} | {names[-1]}
        terms = []
        for n in sorted(chosen):
            t = self.env[n]
            for part in (f"{n}.real", f"{n}.imag") if t.dtype == "c16" else (n,):
                kind = "f8" if t.dtype == "c16" else t.dtype
                terms.append(f"hl.sum({part} * {literal(self.values(t.shape, kind), NAMES[kind])})")
        single = {self.env[n].dtype for n in p.leaves + names}
        p.tolerance = 3e-3 if "f4" in single else 1e-8
        for k, term in enumerate(terms):
            p.lines.append(f"loss1 = loss1 + {term}" if k else f"loss1 = {term}")
        p.tail = len(p.lines)
        again = r.random() < 0.15
        flags = ["create_graph=True"] if p.order > 1 else ["retain_graph=True"] if again else []
        if again and p.order == 1:
            p.lines.append("loss1.backward(retain_graph=True)")
            flags = []
        p.repeats = 2 if again and p.order == 1 else 1
        p.lines.append(f"loss1.backward({', '.join(flags)})")
        for order in range(2, p.order + 1):
            leaves = ", ".join(p.leaves)
            p.lines.append(f"g{order - 1} = [" + ", ".join(f"{n}.grad" for n in p.leaves) + "]")
            probes = ", ".join(
                literal(p.directions[n][order - 2], NAMES[self.env[n].dtype])
                if self.env[n].dtype != "c16"
                else literal(p.directions[n][order - 2], "complex128")
                for n in p.leaves
            )
            p.lines.append(f"loss{order} = second([{leaves}], [{probes}])")
            more = "create_graph=True" if order < p.order else ""
            p.lines.append(f"if loss{order} is not None: loss{order}.backward({more})")


INPUTS = "inputs" in inspect.signature(hl.backward).parameters
RETAIN = hasattr(hl.Tensor, "retain_grad") and torch is not None


def shrink(program, found):
    """The program without the lines it fails as well without."""
    lines = list(program.lines)

    def same(candidate):
        with contextlib.suppress(Exception):
            again = judge(program, candidate)
            return again is not None and kind(again) == kind(found)
        return False

    def kind(found):
        return found[0], found[2].split(":")[0] if "raise" in found[0] else None

    if found[0] in ("function", "retry"):
        return lines
    lines, tail = lines[: program.tail], lines[program.tail :]
    size = len(lines) // 2
    while size:
        i = 0
        while i < len(lines):
            candidate = lines[:i] + lines[i + size :]
            if same(candidate + tail):
                lines = candidate
            else:
                i += size
        size //= 2
    return lines + tail


def one(seed):
    """The text that tells what is wrong with a seed's program, or nothing."""
    program = Generator(seed).make()
    found = judge(program)
    if found is None:
        return ""
    lines = shrink(program, found)
    found = judge(program, lines) or found
    return f"# seed {seed}: {found}\n" + "\n".join(lines) + "\n"


def forked(seeds):
    """The texts of some seeds from a process of its own, so that a crash is a finding and not the end."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        with os.fdopen(write, "w") as pipe:
            for seed in seeds:
                try:
                    pipe.write(one(seed))
                except BaseException as error:  # noqa: BLE001 - the parent shall read it
                    pipe.write(f"# seed {seed}: the tool failed, {type(error).__name__}: {error}\n")
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    status = os.waitpid(child, 0)[1]
    if status == 0:
        return text
    if len(seeds) > 1:
        return "".join(forked([seed]) for seed in seeds)
    return f"# seed {seeds[0]}: crash, status {status}\n" + Generator(seeds[0]).make().script()


def main():
    first, count = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    if count == 1:
        program = Generator(first).make()
        print(program.script())
        print("#", judge(program))
        return
    bad = 0
    for seed in range(first, first + count, 50):
        text = forked(range(seed, min(seed + 50, first + count)))
        if text:
            bad += text.count("# seed ")
            print(text, flush=True)
    print(f"{bad} of {count} differ")


if __name__ == "__main__":
    main()
