"""Lab 03: wrong addresses, forgotten masks, sums that are not brought to one maximum."""

FAULTS = {
    "a slip inside the kernel": (
        "3.1",
        "inside = column < ROW",
        "inside = colum < ROW",
        "it raised NameError at the line `inside = colum < ROW`",
    ),
    "counts slots instead of looking them up": (
        "3.1",
        "slot = tl.load(slot_mapping + token).to(tl.int64)",
        "slot = token.to(tl.int64)",
        "first broken: one token lands in its slot",
    ),
    "the padding of a row is stored": (
        "3.1",
        "tl.store(v_cache + slot * ROW + column, value, mask=inside)",
        "tl.store(v_cache + slot * ROW + column, value)",
        "Without a mask on the store",
    ),
    "rows one row's length apart": (
        "3.1",
        "k + token * k_stride + column",
        "k + token * ROW + column",
        "rows of a fused projection are found",
    ),
    "the padding counts in the mean": (
        "3.2",
        "axis=0) / SIZE + eps",
        "axis=0) / SIZE_PAD + eps",
        "a size that is no power of two is right",
    ),
    "NaN of two empty parts": (
        "3.3",
        'base = m.masked_fill(m == float("-inf"), 0)',
        "base = m",
        "two parts without keys are one without keys",
    ),
    "acc is not shrunk": (
        "3.4",
        "acc = acc * shrink[:, None] + tl.dot",
        "acc = acc + tl.dot",
        "a context longer than a tile is whole",
    ),
    "values are loaded behind the context": (
        "3.4",
        "values = tl.load(v_cache + at, mask=is_kv, other=0.0)",
        "values = tl.load(v_cache + at, mask=(column < HEAD_DIM)[None, :], other=0.0)",
        "a context may end inside a block",
    ),
    "every split begins at 0": (
        "3.5",
        "begin = split * SPLIT + offset",
        "begin = offset",
        "two splits make the whole",
    ),
    "not causal": (
        "3.6",
        "is_seen = position[None, :] <= query_position[:, None]",
        "is_seen = is_token[None, :] & (query_position[:, None] >= 0)",
        "a whole prompt is causal",
    ),
    "cached context is forgotten": (
        "3.6",
        "end = tl.minimum(context_len, context_len - query_len + (tile + 1) * QUERY_TILE)",
        "end = tl.minimum(query_len, (tile + 1) * QUERY_TILE)",
        "a single token is a chunk of one",
    ),
}
