"""x[key] and x[key] = value against NumPy: thousands of random keys, reading, writing, and the gradients of both."""

import numpy as np
import pytest

import hyalite as hl

KEYS = 4000  # tests as a whole take a few seconds


def random_key(rng, shape):
    """A key of integers, slices, None, an ellipsis, index arrays and masks, mostly right for the shape."""
    key, axis, ellipsis = [], 0, False
    joint = tuple(int(n) for n in rng.integers(1, 4, rng.integers(1, 3)))  # what index arrays broadcast to
    while axis < len(shape) and rng.random() < 0.9:
        kind = rng.choice(["int", "slice", "none", "ellipsis", "array", "list", "mask", "scalar", "bool"],
                          p=[0.2, 0.2, 0.1, 0.08, 0.2, 0.06, 0.08, 0.05, 0.03])  # fmt: skip
        n = shape[axis]
        if kind == "none":
            key.append(None)
        elif kind == "ellipsis" and not ellipsis:
            ellipsis = True
            key.append(...)
            axis += int(rng.integers(0, len(shape) - axis + 1))
        elif kind == "bool":
            key.append(bool(rng.integers(2)))
        elif kind == "slice":
            start, stop = (int(v) if rng.random() < 0.7 else None for v in rng.integers(-n - 2, n + 3, 2))
            key.append(slice(start, stop, int(rng.choice([-2, -1, 1, 2])) if rng.random() < 0.5 else None))
            axis += 1
        elif kind in ("int", "scalar") and n:
            i = int(rng.integers(-n, n))
            key.append(i if kind == "int" else np.array(i, rng.choice(["int8", "int64"])))
            axis += 1
        elif kind in ("array", "list") and n:
            sizes = tuple(1 if rng.random() < 0.2 else m for m in joint[int(rng.integers(0, len(joint))) :])
            array = rng.integers(-n, n, sizes).astype(rng.choice(["int8", "int32", "int64"]))
            if rng.random() < 0.3:
                array = (array % n).astype("uint16")
            key.append(array.tolist() if kind == "list" else array)
            axis += 1
        elif kind == "mask":
            span = int(rng.integers(1, min(2, len(shape) - axis) + 1))
            mask = rng.random(shape[axis : axis + span]) < 0.5
            if rng.random() < 0.7 and mask.size:  # so that it goes with the other arrays
                mask[...] = False
                mask.reshape(-1)[rng.permutation(mask.size)[: joint[-1]]] = True
            key.append(mask)
            axis += span
    return tuple(key) if len(key) != 1 or rng.random() < 0.5 else key[0]


def ours(key):
    """The same key with tensors for arrays."""
    if isinstance(key, tuple):
        return tuple(ours(k) for k in key)
    return hl.asarray(key) if isinstance(key, np.ndarray) else key


def cases(seed, n=KEYS):
    rng = np.random.default_rng(seed)
    for _ in range(n):
        shape = tuple(int(v) for v in rng.integers(0 if rng.random() < 0.1 else 1, 5, rng.integers(0, 5)))
        order = rng.permutation(len(shape))
        data = np.arange(np.prod(shape, dtype=int), dtype=np.float64).reshape(shape)
        yield rng, data, order, random_key(rng, shape)


def layouts(data, order):
    """NumPy's array and ours of the same values, its axes in memory in the given order."""
    memory, back = data.transpose(order).copy(), np.argsort(order).tolist()
    return memory.transpose(back), hl.permute_dims(hl.asarray(memory.copy()), back)


def outcome(f):
    try:
        return f(), None
    except (IndexError, ValueError, TypeError) as error:
        return None, error


def test_w16_reading_places_axes_as_numpy_does():
    compared = refused = arrays = 0
    for rng, data, order, key in cases(1):
        theirs, x = layouts(data, order)
        want, their_error = outcome(lambda a=theirs, k=key: a[k])
        mine = ours(key) if rng.random() < 0.5 else key
        got, our_error = outcome(lambda a=x, k=mine: a[k])
        if their_error:
            assert isinstance(our_error, IndexError), (data.shape, key, their_error, our_error)
            refused += 1
            continue
        assert our_error is None, (data.shape, key, our_error)
        assert got.shape == want.shape, (data.shape, key)
        np.testing.assert_array_equal(got.numpy(), want, err_msg=f"{data.shape} {key}")
        compared += 1
        arrays += any(isinstance(k, np.ndarray | list) for k in (key if isinstance(key, tuple) else (key,)))
    assert compared > 2000 and refused > 50 and arrays > 1000


def random_value(rng, shape):
    """Something that broadcasts to the shape: fewer axes, sizes of 1, more leading ones."""
    cut = tuple(1 if rng.random() < 0.25 else n for n in shape[int(rng.integers(0, len(shape) + 1)) :])
    lead = (1,) * int(rng.random() < 0.1 and len(shape) > 0)
    return -1.0 - np.asarray(rng.integers(0, 100, lead + cut), dtype=np.float64)


@pytest.mark.parametrize("view", [False, True], ids=["whole", "view"])
def test_w16_f2_writing_stores_what_numpy_stores(view):
    compared = 0
    for rng, data, order, key in cases(2 + view):
        theirs, x = layouts(data, order)
        target, base, image = (theirs, x, x)
        if view and data.ndim:
            step = slice(None, None, -1)
            target, image = theirs[step], x[step]
        want, error = outcome(lambda a=target, k=key: a[k])
        if error:
            continue
        value = random_value(rng, want.shape)
        if want.size and np.unique(target[key]).size != want.size:
            value = value.reshape(-1)[0]  # of equal indices NumPy promises no order
        if value.ndim > want.ndim and np.ndim(want) == 1:
            value = value[0]  # NumPy strips no leading axes for a mask alone
        target[key] = value
        version = base.version
        image[ours(key)] = hl.asarray(value) if rng.random() < 0.5 else value
        assert base.version == version + 1 or want.size == 0
        np.testing.assert_array_equal(base.numpy(), theirs, err_msg=f"{data.shape} {key} {value}")
        compared += 1
    assert compared > 2000


def test_w16_f2_the_last_of_equal_indices_wins():
    x = hl.zeros(5)
    x[[1, 3, 1, 1]] = hl.asarray([1.0, 2.0, 3.0, 4.0])
    assert x.tolist() == [0.0, 4.0, 0.0, 2.0, 0.0]
    y = hl.zeros((2, 2))
    y[[0, 0], [1, 1]] = [5.0, 6.0]
    assert y.tolist() == [[0.0, 6.0], [0.0, 0.0]]


def position_gradient(shape, key, weights):
    """The gradient of sum(x[key] * weights), by adding where each element comes from."""
    places = np.arange(np.prod(shape, dtype=int)).reshape(shape)[key]
    out = np.zeros(int(np.prod(shape, dtype=int)))
    np.add.at(out, places.reshape(-1), np.asarray(weights).reshape(-1))
    return out.reshape(shape)


def test_w16_gradients_of_reading_and_writing():
    compared = 0
    for rng, data, order, key in cases(4, 1500):
        theirs, x = layouts(data, order)
        want, error = outcome(lambda a=theirs, k=key: a[k])
        if error:
            continue
        weights = rng.integers(1, 9, want.shape).astype(float)
        leaf = x.detach().requires_grad_()
        (leaf[ours(key)] * hl.asarray(weights)).sum().backward()
        np.testing.assert_array_equal(leaf.grad.numpy(), position_gradient(data.shape, key, weights), err_msg=str(key))

        # Written: the old values get nothing, the value gets what flows to the places it went to.
        if want.size and np.unique(want).size != want.size:
            continue
        value = hl.asarray(random_value(rng, want.shape)).requires_grad_()
        leaf = x.detach().requires_grad_()
        y = leaf * 1
        y[ours(key)] = value
        flow = rng.integers(1, 9, data.shape).astype(float)
        (y * hl.asarray(flow)).sum().backward()
        kept = flow.copy()
        kept[key] = 0
        got = 0 * kept if leaf.grad is None else leaf.grad.numpy()  # None: all of it was overwritten
        np.testing.assert_array_equal(got, kept, err_msg=str(key))
        if want.size:
            reached = np.broadcast_to(np.asarray(flow)[key], want.shape)
            lead = (1,) * max(0, want.ndim - value.ndim)
            sizes = lead + value.shape[max(0, value.ndim - want.ndim) :]
            axes = tuple(i for i, n in enumerate(sizes) if n == 1 and want.shape[i] != 1)
            expected = reached.sum(axis=axes, keepdims=True).reshape(value.shape)
            np.testing.assert_array_equal(value.grad.numpy(), expected, err_msg=str(key))
        compared += 1
    assert compared > 500


def test_f2_a_mask_takes_whatever_broadcasts():
    x = hl.zeros((2, 2))
    x[hl.asarray([True, False])] = 1.0
    assert x.tolist() == [[1.0, 1.0], [0.0, 0.0]]
    x[:, hl.asarray([False, True])] = hl.asarray([[7.0], [8.0]])
    assert x.tolist() == [[1.0, 7.0], [0.0, 8.0]]
    x[x > 6] = [3, 4]
    assert x.tolist() == [[1.0, 3.0], [0.0, 4.0]]
    x[x > 100] = 5.0
    assert x.tolist() == [[1.0, 3.0], [0.0, 4.0]]
    x.T[x.T == 3] = x[0, 0]
    assert x.tolist() == [[1.0, 1.0], [0.0, 4.0]]


def test_f2_every_dtype_is_assigned_through_masks_and_indices():
    for name in ("bool", "int8", "uint64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128"):
        x = hl.zeros((4, 3), dtype=getattr(hl, name))
        x[hl.asarray([True, False, False, True]), 1:] = True
        x[[1], [0]] = True
        got = x.astype(hl.int32).tolist() if name[:7] != "complex" else x.real.astype(hl.int32).tolist()
        assert got == [[0, 1, 1], [1, 0, 0], [0, 0, 0], [0, 1, 1]], name


BAD_KEYS = {
    "float": (lambda x: x[1.0], "int(i)"),
    "text": (lambda x: x["a"], "str 'a'"),
    "beyond": (lambda x: x[3], "index 3 is out of range for axis 0 of size 3; write one from -3 to 2"),
    "far beyond": (lambda x: x[2**70], str(2**70)),
    "array beyond": (lambda x: x[[0, 7]], "index 7 is out of range for axis 0 of size 3"),
    "second axis": (lambda x: x[:, [0, -5]], "index -5 is out of range for axis 1 of size 4"),
    "behind an integer": (lambda x: x[0, [9]], "index 9 is out of range for axis 1 of size 4"),
    "two arrays": (lambda x: x[[0, 1], [0, -5]], "index -5 is out of range for axis 1 of size 4"),
    "unsigned": (lambda x: x[np.array([2**64 - 1], np.uint64)], str(2**64 - 1)),
    "floats": (lambda x: x[[0.5]], "write i.astype(hl.int64)"),
    "too many": (lambda x: x[0, 0, 0], "too many indices: 3 for 2 axes"),
    "two ellipses": (lambda x: x[..., ...], "one ..."),
    "mask": (lambda x: x[[True, False]], "a mask of shape (2,) does not match axis 0 of size 3"),
    "broadcast": (lambda x: x[[0, 1], [0, 1, 2]], "do not broadcast"),
}


@pytest.mark.parametrize("attempt, text", BAD_KEYS.values(), ids=BAD_KEYS)
def test_f4_an_index_error_says_which_index(attempt, text):
    with pytest.raises(IndexError) as caught:
        attempt(hl.zeros((3, 4)))
    assert text in str(caught.value) and "take()" not in str(caught.value)


BAD_VALUES = {
    "float64 array": (hl.float32, np.ones(2), "float64 does not go into float32; write hl.asarray(value).astype("),
    "float64 tensor": (hl.float32, hl.ones(2, dtype=hl.float64), "write value.astype(hl.float32)"),
    "float": (hl.int32, 1.5, "write hl.asarray(value).astype(hl.int32)"),
    "complex": (hl.float32, 1j, "write hl.real(value)"),
    "large int": (hl.int8, 300, "setitem(): 300 does not fit int8; write x.astype(hl.int16) first"),
    "huge int": (hl.int64, 2**70, str(2**70)),
    "shape": (hl.float32, hl.ones(3), "setitem(): a value of shape (3,) does not broadcast to (2,)"),
}  # fmt: skip


@pytest.mark.parametrize("dtype, value, text", BAD_VALUES.values(), ids=BAD_VALUES)
@pytest.mark.parametrize("key", [0, [0], slice(0, 1)], ids=["view", "array", "slice"])
def test_f4_an_assignment_says_what_to_write(dtype, value, text, key):
    x = hl.zeros((2, 2), dtype=dtype)
    with pytest.raises((TypeError, ValueError, OverflowError)) as caught:
        x[key] = value
    assert text.replace("to (2,)", "") in str(caught.value)
    assert x.version == 0 and not hl.any(x)


def test_f5_lists_of_numbers_are_weak_when_assigned():
    x = hl.zeros(4, dtype=hl.int8)
    x[:2] = [1, 2]
    x[[2, 3]] = (3, 4)
    assert x.tolist() == [1, 2, 3, 4] and x.dtype == hl.int8
    with pytest.raises(OverflowError, match="300"):
        x[:2] = [1, 300]
    with pytest.raises(TypeError, match="float"):
        x[:2] = [1, 2.5]


# ---- a key that is one tensor ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(4,), (4, 3), (4, 3, 2), (0, 3)])
@pytest.mark.parametrize("rank", [1, 2])
def test_one_mask_reads_and_writes_as_numpy(shape, rank):
    """It goes to `take`, or to `where`, without a plan; views, gradients and what overlaps stay what they are."""
    if rank > len(shape):
        return
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    for flip in (False, True):
        x, want = hl.asarray(values.copy()), values.copy()
        if flip:
            x, want = x[::-1], want[::-1]
        mask = np.arange(np.prod(shape[:rank])).reshape(shape[:rank]) % 3 == 1
        for m in (mask, ~mask, mask & False):
            got = x[hl.asarray(m)]
            assert got.shape == want[m].shape and got.tolist() == want[m].tolist()
            x[hl.asarray(m)] = 7
            want[m] = 7
            assert x.tolist() == want.tolist()


def test_one_mask_writes_a_number_with_its_gradient():
    w = hl.ones((2, 3)).requires_grad_(True)
    y = w * 2.0
    y[0][hl.asarray([True, False, True])] = 5.0
    y.sum().backward()
    assert w.grad.tolist() == [[0, 2, 0], [2, 2, 2]]
    with pytest.raises(hl.DtypeMismatch, match="float32"):
        hl.ones(2, dtype=hl.int32)[hl.asarray([True, False])] = 0.5


def test_the_square_of_reals_is_one_multiplication():
    """`x ** 2`, however it is written; other powers, complex numbers and autocast keep `pow`."""
    for name in ("int8", "uint64", "float16", "bfloat16", "float32", "float64"):
        x = hl.asarray([1, 3, 7]).astype(getattr(hl, name))
        y = x.copy()
        y **= 2
        for squared in (x**2, hl.pow(x, 2), hl.square(x), y):
            assert squared.dtype is x.dtype and squared.tolist() == [1, 9, 49]
    w = hl.asarray([1.1, -0.3]).requires_grad_(True)
    assert (w**2).grad_fn.name == (w**2.0).grad_fn.name == "SquareBackward"
    assert (w**3).grad_fn.name == "PowBackward" and (w.astype(hl.complex64) ** 2).grad_fn.name == "PowBackward"
    with hl.autocast():
        assert (w**2).dtype is (w**3).dtype
