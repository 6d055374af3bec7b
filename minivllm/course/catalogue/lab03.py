"""Lab 03: the kernels, from copying a row to attention over a paged context."""

from .exercise import Exercise

NAME = "03_triton_kernels"

# Attention that somebody else has written.
READY_MADE = (
    "torch.nn.functional:scaled_dot_product_attention",
    "minivllm.attention.dense:causal_attention",
    "minivllm.attention.paged:paged_attention",
)

EXERCISES = (
    Exercise(
        "3.1",
        "store_kv",
        "kernels.store_kv:store_kv",
        "store_kv",
        points=2,
        engine_part="kernels.store_kv",
        off_limits=(
            "minivllm.kernels.store_kv:store_kv_kernel",
            "minivllm.course.reference.kernels:store_kv",
        ),
        needs="triton",
        stand_in="course.reference.kernels:store_kv",
    ),
    Exercise(
        "3.2",
        "rms_norm",
        "kernels.rms_norm:rms_norm",
        "rms_norm",
        points=1,
        core=False,
        engine_part="kernels.rms_norm",
        off_limits=(
            "minivllm.kernels.rms_norm:rms_norm_kernel",
            "minivllm.course.reference.kernels:rms_norm",
            "minivllm.model.layers:rms_norm",
            "torch.nn.functional:rms_norm",
        ),
        needs="triton",
        stand_in="course.reference.kernels:rms_norm",
    ),
    Exercise(
        "3.3", "combine_partials", "course.reference.kernels:combine_partials", "combine_partials", points=2
    ),
    Exercise(
        "3.4",
        "paged_decode",
        "kernels.paged_decode:paged_decode",
        "paged_decode",
        points=4,
        engine_part="kernels.paged_decode",
        off_limits=(
            "minivllm.kernels.paged_decode:paged_decode_kernel",
            "minivllm.course.reference.kernels:paged_decode",
            *READY_MADE,
        ),
        needs="triton",
        stand_in="course.reference.kernels:paged_decode",
    ),
    Exercise(
        "3.5",
        "paged_decode_split",
        "kernels.paged_decode:paged_decode",
        "paged_decode_split",
        points=2,
        core=False,
        off_limits=(
            "minivllm.kernels.paged_decode:paged_decode_kernel",
            "minivllm.course.reference.kernels:paged_decode",
            *READY_MADE,
        ),
        needs="triton",
        stand_in="course.reference.kernels:paged_decode",
    ),
    Exercise(
        "3.6",
        "paged_prefill",
        "kernels.paged_prefill:paged_prefill",
        "paged_prefill",
        points=2,
        core=False,
        engine_part="kernels.paged_prefill",
        off_limits=(
            "minivllm.kernels.paged_prefill:paged_prefill_kernel",
            "minivllm.course.reference.kernels:paged_prefill",
            *READY_MADE,
        ),
        needs="triton",
        stand_in="course.reference.kernels:paged_prefill",
    ),
)
