"""C2: the bytes of keys and values are arithmetic, and the engine takes what the arithmetic says.

The popular case has 80 layers, 8 KV heads of 128, and 2 bytes a number; people repeat its figures with
slips in them, which the exact ones show.
"""

from __future__ import annotations

from types import SimpleNamespace

from ...executor.cost import kv_bytes_per_token, max_concurrent_requests
from ..workloads import make_jobs
from .figure import Claim, Figure, exactly
from .machine import Machine, kv_cache_bytes, kv_dtype_bytes
from .play import play

TITLE = "bytes of keys and values"
LARGE = SimpleNamespace(num_layers=80, num_kv_heads=8, head_dim=128)
LENGTHS = ((15, 2), (16, 2), (100, 13))


def measure(machine: Machine) -> Claim:
    """A token takes 2 · layers · KV heads · head_dim · bytes a number. Live, the engine's tensors are
    blocks · block_size times that, to the byte, and a request of n stored tokens owns ceil(n /
    block_size) blocks.

    The popular case: 4,096 bytes a token and layer, 327,680 in all layers; 4,096 tokens take
    1,342,177,280 bytes, which is 1.25 GiB or 1.34 GB. "1.28 GB" mixes the two (1.25 · 1,024 / 1,000). Of
    such requests 38 · 10⁹ bytes hold 28, and 38 GiB hold 30.
    """
    engine = machine.engine()
    config, size = engine.model_config, engine.config.block_size
    per_token = 2 * config.num_layers * config.num_kv_heads * config.head_dim * kv_dtype_bytes(engine)
    expected = engine.kv.num_blocks * size * per_token
    figures = [Figure("bytes of the engine's KV tensors", kv_cache_bytes(engine), exactly(expected))]
    for prompt, output in LENGTHS:
        run = play(engine, make_jobs([(prompt, output)], config.vocab_size), machine.on_step)
        stored = prompt + output - 1  # the last token is returned, and never computed on
        most = max(len(step.block_tables.get("0", ())) for step in run.steps)
        figures.append(
            Figure(f"blocks of a request of {stored} stored tokens", most, exactly(-(-stored // size)))
        )
    request = 4096 * kv_bytes_per_token(LARGE, 2)
    figures += [
        Figure("80 layers, 8 × 128, 2 bytes: bytes a token", kv_bytes_per_token(LARGE, 2), exactly(327_680)),
        Figure("… of a request of 4,096 tokens, GiB", request / 2**30, exactly(1.25)),
        Figure("… the same in GB, rounded", round(request / 1e9, 2), exactly(1.34)),
        Figure("… such requests in 38 × 10⁹ bytes", _requests_in(38 * 10**9), exactly(28)),
        Figure("… such requests in 38 GiB", _requests_in(38 * 2**30), exactly(30)),
        Figure("bits a weight for 70 B weights in 42 × 10⁹ bytes", 42e9 * 8 / 70e9, exactly(4.8)),
    ]
    return Claim(
        "C2",
        TITLE,
        "request length, model, unit",
        figures,
        "Arithmetic, so exact. The often quoted 1.28 GB a request mixes units, 'about 30 requests in 38 GB' "
        "holds in GiB only, and 42 GB of weights for 70 B parameters are 4.8 bits a weight, not 16.",
    )


def _requests_in(num_bytes: int) -> int:
    return max_concurrent_requests(num_bytes, 0, LARGE, 4096)
