"""What the constants of the estimator are fitted from: priors, and forms of the formula to choose among."""

from __future__ import annotations

from typing import NamedTuple


class Prior(NamedTuple):
    """``value``, and how firm it is: the larger, the less the rows move it."""

    value: float
    firmness: float


PRIORS = {
    "weight_bandwidth": Prior(0.9, 5),
    "expert_bandwidth": Prior(0.8, 5),
    "kv_bandwidth": Prior(0.8, 10),
    "compute": Prior(0.7, 30),
    "fp8_compute": Prior(0.9, 60),
    "fp4_compute": Prior(0.8, 10),
    "expert_compute": Prior(0.7, 30),
    "expert_fp8_compute": Prior(0.65, 10),
    "expert_skew": Prior(0.5, 10),
    "unpacked_compute": Prior(0.7, 5),
    "unpacked_bandwidth": Prior(0.8, 5),
    "move_bandwidth": Prior(0.8, 10),
    "attention_compute": Prior(0.6, 30),
    "layer_s": Prior(5e-5, 3),
    "expert_layer_s": Prior(3e-5, 3),
    "all_reduce_s": Prior(2e-6, 3),
    "link_share": Prior(0.6, 5),
    "all_to_all_share": Prior(0.3, 3),
    "all_to_all_s": Prior(2e-5, 3),
    "sequence_s": Prior(1e-5, 3),
    "request_s": Prior(1e-3, 3),
    "launch_layer_s": Prior(3e-5, 3),
    "prompt_token_s": Prior(2e-6, 3),
    "prompts_together": Prior(1.0, 1),
    "step_s_vllm": Prior(1e-3, 3),
    "step_s_sglang": Prior(1e-3, 3),
    "step_s_tensorrt_llm": Prior(1e-3, 3),
    "first_token_s_vllm": Prior(0.04, 1),
    "first_token_s_sglang": Prior(0.1, 10),
    "first_token_s_tensorrt_llm": Prior(0.06, 10),
    "first_steps_vllm": Prior(1.0, 3),
    "first_steps_sglang": Prior(3.0, 3),
    "first_steps_tensorrt_llm": Prior(3.0, 3),
    "burst_share": Prior(0.1, 10),
}
"""What may be fitted. The other constants of estimator.csv are from elsewhere. Those of experts are what grouped
matrices reach on an H200 (benchmarks/data/gpu_mixtures_h200.csv): 0.5 of peak in bf16 at 8,192 tokens, whatever their
width, and in FP8 half as much of its own. Launches: some ten kernels a layer, each some 5 us, of which the GPU hides a
part; tokens of a prompt: tokenizers split half a million tokens a second; an all-to-all: some ten microseconds more
than an all-reduce, since its sizes are not known before. The copies of tokens to the rows of experts are held as firmly
as measured blocks of mixtures want it (benchmarks/estimator_layers.py): served rows alone would have them slower."""


class Form(NamedTuple):
    """A shape of the formula: constants that keep a value, how much TTFT weighs beside TPOT, how firm all priors are,
    and ``values`` of priors other than those of :data:`PRIORS`."""

    name: str
    kept: dict[str, float]
    ttft_weight: float = 1.0
    firmness: float = 1.0
    values: dict[str, float] = {}


_BURST = {"burst_share": 0.1}
_NO_WAITS = _BURST | {"first_steps_vllm": 0.0, "first_steps_sglang": 0.0, "first_steps_tensorrt_llm": 0.0}
_EACH_ALONE = {"prompts_together": 0.0, "clients_in_step": 0.0}
_IN_STEP = {"clients_in_step": 1.0}
_NO_LAUNCHES = {"launch_layer_s": 0.0, "prompt_token_s": 0.0, "all_to_all_s": 0.0}
_EVEN = dict.fromkeys(("fp8_compute", "fp4_compute", "unpacked_compute", "unpacked_bandwidth", "link_share"), 0.75)
FORMS = (
    Form("each alone", _NO_WAITS | _EACH_ALONE | _NO_LAUNCHES),
    Form("in step", _NO_WAITS | _IN_STEP | _NO_LAUNCHES),
    Form("in step, launches", _NO_WAITS | _IN_STEP),
    Form("in step, launches, waits", _BURST | _IN_STEP),
    Form("in step, launches, waits, loose priors", _BURST | _IN_STEP, firmness=0.3),
    Form("in step, launches, waits, even priors", _BURST | _IN_STEP, values=_EVEN),
)
"""Among these a split chooses, by what they are worth on groups left out of its training part. *each alone*: prompts
come at any time, however long requests are; *in step*: those of one length come together. *launches*: kernels of steps
with prompts are launched one by one, tokens of a prompt cost time before it is computed, and all-to-alls have a latency
of their own. *waits*: engines take requests up and answer after some steps more than their options say. *loose priors*:
a third as firm; *even priors*: every share of a peak rate that 16-bit layers on one GPU do not tell starts from three
quarters, as one would have it who has seen no row. So how far priors are trusted, and with which values, is chosen
without the group too."""
