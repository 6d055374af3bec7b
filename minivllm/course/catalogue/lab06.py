"""Lab 06: cached prefixes, who uses them, and who goes first."""

from .exercise import Exercise

NAME = "06_prefix_caching"

_OWN = ("minivllm.kv.prefix:HashPrefixCache", "minivllm.kv.radix:RadixPrefixCache")

EXERCISES = (
    Exercise(
        "6.1",
        "block_hashes",
        "course.reference.prefix:block_hashes",
        "block_hashes",
        points=2,
        off_limits=("minivllm.kv.prefix:block_name",),
    ),
    Exercise(
        "6.2",
        "BlockIndex",
        "course.reference.prefix:BlockIndex",
        "block_index",
        points=3,
        off_limits=_OWN,
    ),
    Exercise(
        "6.3",
        "CountedCache",
        "course.reference.prefix:CountedCache",
        "counted_cache",
        points=3,
        off_limits=_OWN,
    ),
    Exercise(
        "6.4",
        "PrefixCache",
        "course.reference.prefix:PrefixCache",
        "prefix_cache",
        points=3,
        engine_part="prefix_cache",
        off_limits=_OWN,
    ),
    Exercise(
        "6.5",
        "RadixCache",
        "kv.radix:RadixPrefixCache",
        "radix_cache",
        points=3,
        core=False,
        engine_part="prefix_cache",
        off_limits=_OWN,
    ),
)
