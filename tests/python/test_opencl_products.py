"""Matrix products on OpenCL: CLBlast's where they are large, our kernel's else, of every layout, against the CPU's."""

import os

import numpy as np
import pytest
from test_compile_tiers import run
from test_opencl import CL, facts

import hyalite as hl

SHAPES = {
    "one": ((70, 80), (80, 60)), "batches": ((3, 70, 80), (3, 80, 60)), "of one": ((3, 70, 80), (80, 60)),
    "by one": ((70, 80), (3, 80, 60)), "two axes": ((2, 3, 70, 80), (2, 3, 80, 60)),
    "broadcast": ((2, 1, 70, 80), (3, 80, 60)), "repeats within": ((2, 1, 70, 80), (2, 3, 80, 60)),
    "repeats without": ((2, 3, 70, 80), (1, 3, 80, 60)), "a row": ((1, 300), (300, 1000)),
    "a column": ((1000, 300), (300, 1)), "no rows": ((0, 600), (600, 600)), "no batches": ((0, 90, 90), (90, 90)),
}  # fmt: skip
# How an operand lies on the device.
LIES = {
    "dense": lambda x: x.to(CL),
    "transposed": lambda x: x.mT.copy().to(CL).mT,
    "steps": lambda x: hl.stack([x, x], axis=-1).to(CL)[..., 1],
    "a part": lambda x: hl.concat([x, x, x], axis=-1).to(CL)[..., x.shape[-1] : 2 * x.shape[-1]],
    "backwards": lambda x: hl.flip(x, axis=-2).to(CL)[..., ::-1, :],
}
PRODUCTS = [("float32", s, lies) for s in SHAPES for lies in LIES] + [
    (dtype, s, "transposed")
    for dtype in ("float64", "float16", "bfloat16", "complex64", "int32")
    for s in ("one", "repeats within")
]


def normal(shape, seed):
    return hl.asarray(np.random.default_rng(seed).normal(size=shape).astype(np.float32) * 3)


def check_product(dtype, shapes, lies):
    x, y = (normal(s, seed).astype(getattr(hl, dtype)) for seed, s in enumerate(shapes))
    expected = x @ y
    for a, b in ((LIES[lies](x), y.to(CL)), (x.to(CL), LIES[lies](y)), (LIES[lies](x), LIES[lies](y))):
        found = (a @ b).to("cpu")
        assert found.shape == expected.shape and found.dtype == expected.dtype
        wide = [t.astype(hl.complex128).numpy() for t in (found, expected)]
        if wide[0].size:
            ulp = {"bfloat16": 2.0**-7, "float16": 2.0**-10, "float64": 2.0**-49}.get(dtype, 2.0**-20)
            assert abs(wide[0] - wide[1]).max() <= ulp * abs(wide[1]).max(), lies


@pytest.mark.parametrize(("dtype", "shapes", "lies"), PRODUCTS)
def test_large_products(dtype, shapes, lies):
    assert facts()["products"] == "CLBlast, where they are large"
    check_product(dtype, SHAPES[shapes], lies)


def test_a_large_product_is_the_library_s():
    x, y = (normal(s, 3).to(CL) for s in ((70, 80), (80, 60)))
    hl.synchronize()
    (small, large) = (
        [launch for s in hl.explain(f, show=False).steps for launch in s.get("launches", [])]
        for f in (lambda: print(end="") or (x[:4] @ y).to("cpu"), lambda: print(end="") or (x @ y).to("cpu"))
    )
    assert [launch["name"] for launch in small] == ["hyalite_matmul"]
    (launch,) = large
    assert launch["name"] == "CLBlastSgemm" and launch["device_ns"] > 0 and "text" not in launch


def test_products_without_the_library():
    code = """
import sys
sys.path.insert(0, %r)
import test_opencl_products as t
assert t.facts()["products"].startswith("our kernels: CLBlast did not open: ")
for lies in t.LIES:
    t.check_product("float32", t.SHAPES["repeats within"], lies)
for dtype in ("float64", "float16", "complex64"):
    t.check_product(dtype, t.SHAPES["one"], "transposed")
print("right")
"""
    assert run(code % os.path.dirname(__file__), HYALITE_CLBLAST="/nowhere.so") == "right"
