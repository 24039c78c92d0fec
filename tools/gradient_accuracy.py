"""Writes docs/accuracy.md: what each op declares of its derivatives, and the worst errors against mpmath.

./dev python tools/gradient_accuracy.py            # prints the page
./dev python tools/gradient_accuracy.py --write    # replaces docs/accuracy.md
"""

import itertools
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "python"))
PAGE = ROOT / "docs" / "accuracy.md"
COUNT = 1500
DTYPES = ["float32", "float64", "float16", "bfloat16"]

HEAD = f"""# Accuracy of derivatives

Each op declares the largest error of its first and second derivatives beside that of its value: `gradient_ulp` in its
schema, in units in the last place of float32 and float64, for an incoming gradient of 1. A declared 0 is exact or
correctly rounded (0.5). float16 and bfloat16 are float32's result rounded once, so to 0.5 the declared number adds
little there.

"Worst" is the largest error among some {COUNT} points a dtype: numbers of both signs and every size, the ends of the
range with subnormals, and places where functions change; against mpmath with 200 bits
(`tests/python/gradient_oracle.py`). Where a derivative passes through 0 as a sum (gelu, the mixed derivative of a
power) the unit is that of its terms. Points where x / y, x ** y, x ** (y - 2) or gelu's density is itself no normal
number are left out: the result has their error. `tests/python/test_gradient_values.py` holds every op to these numbers
on other points, and softmax, log_softmax and prod by themselves; it also holds this page to the schema.

`./dev python tools/gradient_accuracy.py --write` writes the page anew.

| op | derivative | declared | {" | ".join(f"worst {d}" for d in DTYPES)} |
|---|---|---|{"---|" * len(DTYPES)}
"""


def name_of(op, which, params):
    return "by " + ", ".join(params[op][i] for i in which)


def rows():
    from gradient_oracle import AUDITED, SECOND, orders, worst
    from op_oracle import OPS, declared

    params = {op: OPS[op]["params"] for op in AUDITED}
    for op in AUDITED:
        for which in itertools.chain(*orders(op)):
            if len(which) == 2 and which not in SECOND.get(op, {}):
                continue  # 0 everywhere
            cells = []
            for dtype in DTYPES:
                measured = dtype in declared(op) and (len(which) == 1 or dtype in ("float32", "float64"))
                cells.append(f"{worst(op, which, dtype, COUNT, seed=1)[0]:.2f}" if measured else "")
            ulp = OPS[op]["gradient_ulp"][len(which) - 1]
            yield f"| {op} | {name_of(op, which, params)} | {ulp:g} | {' | '.join(cells)} |"


def main():
    text = HEAD + "\n".join(rows()) + "\n"
    if "--write" in sys.argv:
        PAGE.write_text(text)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
