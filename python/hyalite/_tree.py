"""Nested lists, tuples, named tuples and dicts as their leaves: what functions take, return and are differentiated by.

None is a tree without leaves. Everything else, a tensor or a number, is a leaf.
"""


def flatten(tree, name=""):
    """The leaves in order, a name for each (`name['w'][0]`), and what puts others in their places."""
    leaves, names = [], []
    return leaves, names, _take_apart(tree, name, leaves, names)


def _take_apart(tree, name, leaves, names):
    if tree is None:
        return lambda _: None
    # What is returned must not hold the tree: its leaves may have a history that leads back here.
    kind = type(tree)
    if isinstance(tree, dict):
        keys = list(tree)
        parts = [_take_apart(tree[k], f"{name}[{k!r}]", leaves, names) for k in keys]
        first = ()
        if kind is not dict:
            import collections

            first = (tree.default_factory,) if isinstance(tree, collections.defaultdict) else ()
        return lambda new: kind(*first, zip(keys, [p(new) for p in parts], strict=True))
    if isinstance(tree, (list, tuple)):
        parts = [_take_apart(x, f"{name}[{i}]", leaves, names) for i, x in enumerate(tree)]
        return lambda new: _like_sequence(kind, [p(new) for p in parts])
    place = len(leaves)
    leaves.append(tree)
    names.append(name)
    return lambda new: new[place]


def _like_sequence(kind, parts):
    return kind(*parts) if hasattr(kind, "_fields") else kind(parts)


def map_leaves(function, tree):
    """The tree with `function` of each leaf in its place."""
    leaves, _, rebuild = flatten(tree)
    return rebuild([function(x) for x in leaves])
