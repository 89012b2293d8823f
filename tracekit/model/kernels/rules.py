"""The ordered table of name patterns. The first row that matches decides.

Order is meaning. Load-time repacking comes before everything that shares its library's name;
communication before reduction; dequantisation before the products that do it inside; every
``...gemm_relu...`` before the activations. Patterns are written for lower case and searched in the
function's qualified name first, then in that name together with its template arguments, because
half of CUTLASS is called ``device_kernel``. "Not inside a word" is written after the first letter,
as in ``n(?<![a-z]n)vls_``: a pattern that begins with a lookbehind cannot skip ahead.
"""

from __future__ import annotations

from tracekit.model.kernels.kinds import KernelKind

__all__ = ["CUSTOM_COMM_FUSED", "FAMILIES", "MULTICAST", "RULES"]

_K = KernelKind
_DEQUANT = (
    r"dequant|reconstruct_(?:exllama|gptq|kernel)|convert_fp8_kernel|code\dx\d+dequant"
    r"|unpack_[248]_?bit"
)
_NORM = r"(?:rms|layer|group|batch|instance|l2|qk|add)_?norm|l(?<![a-z]l)n_(?:fwd|bwd)|gammabeta"
_ACTIVATION = r"act_and_mul|silu|swiglu|geglu|gelu|r(?<![a-z]r)elu|activation_kernel|activation::"

RULES: tuple[tuple[KernelKind, str], ...] = (
    # TorchInductor spells the fused operators into the name: only its prefix tells the class.
    (_K.DEQUANT, r"^triton_(?:poi|per|red)_fused.*dequantize"),
    (_K.GEMM, r"^triton_(?:tem_fused_)?_*(?:add|b|scaled_)?mm"),
    (_K.ATTENTION, r"^triton_tem_fused.*(?:flex_)?attention"),
    (_K.REDUCTION, r"^triton_(?:red|per|mix)_fused"),
    (_K.ELEMENTWISE, r"^triton_(?:poi|for)_fused"),
    (
        _K.REPACK,
        r"repack|prepack|shuffle_[248]_?bit|make_sequential_[2348]_?bit|permute_cols"
        r"|marlin_int4_fp8_preprocess",
    ),
    (_K.COMM, r"^(?:r|ms)?nccl|^mscclkernel"),
    # A block-wide sum is a reduction although programmers like to call it all-reduce.
    (_K.REDUCTION, r"(?:block|warp)_?all_?reduce"),
    (
        _K.CUSTOM_COMM,
        r"cross_device_reduce|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|moe_?a2a"
        r"|a(?<![a-z]a)2a_|multimem_|trtllm_mnnvl|deep_ep::(?:intranode|internode|\w*ll)"
        r"|userbuffers|nvshmem|mscclpp|^executionkernel$|lamport_style|n(?<![a-z]n)vls_",
    ),
    (
        _K.GEMM_HELPER,
        r"split_?k_?reduce|reduce_?split_?k|get_group_gemm_starts|group_gemm_starts"
        r"|deep_gemm::.*(?:transpose|pack|layout)",
    ),
    (_K.GEMM_QUANT, rf"^(?=.*(?:{_DEQUANT})).*(?:gemm|gemv|mul_mat|matmul)"),
    (_K.DEQUANT, _DEQUANT),
    (
        _K.GEMM_QUANT,
        r"marlin|machete|awq_gemm|gptq\w*gemm|gemm\w*gptq|bitblas|wna16|w4a16|w8a16|w4a8"
        r"|gemm_half_q_half|gemm_forward_4bit|fpa_?intb|weight_?only|tinygemm|kgemm_4bit"
        r"|mul_mat_(?:vec_)?q|int4_?(?:mm|gemm|gemv)|nuq\dmatmul|code\dx\d+matvec|dqmma"
        r"|generic_mixed_gemm|mixed_?input|fused_moe_kernel_gptq_awq|matmul4bit",
    ),
    (
        _K.KV_CACHE,
        r"reshape_and_cache|concat_and_cache|quant_and_cache|copy_blocks|swap_blocks|slot_mapping"
        r"|(?:store|set|write|update|copy|transfer|gather|move)_?(?:mla_)?kv_?(?:cache|buffer|data)"
        r"|append_?paged_?kv|concat_?mla_?k|(?:cp_)?gather_(?:and_upconvert_\w+_)?cache"
        r"|kv_indices|kv_?cache_?(?:copy|write|update|store|scatter|reshape)",
    ),
    # A norm or an activation that also quantises its output is still that norm or activation.
    (
        _K.QUANTIZE,
        rf"^(?!.*(?:{_NORM}|{_ACTIVATION}|attn|attention|gemm)).*"
        r"(?:scaled_(?:fp8|int8|fp4)_quant|per_token_\w*quant|quantize_(?:row|block|q8|mmq|with)"
        r"|kquantizeblockwise|int8vectorquant|(?:fp8|fp4|int8)_\w*quant|cvt_(?:fp16|bf16|fp32)?_?to"
        r"|scale_1x128|group_quant)",
    ),
    (
        _K.ATTENTION,
        r"flash_(?:fwd|bwd|fprop|bprop|attn|attention|mla)|f(?<![a-z]f)lash::|flashattn|fmha"
        r"|attention|attn|sdpa|batch(?:prefill|decode)with|single(?:prefill|decode)with"
        r"|podwithkv|merge_?(?:attn_)?states|softmax_warp|m(?<![a-z]m)la(?![a-z])"
        r"|prepare_varlen_num_blocks|_fwd_(?:grouped_)?kernel_stage[12]|batchmla",
    ),
    (
        _K.MOE_GEMM,
        r"fused_moe_kernel|moe\w*_?gemm|gemm\w*_moe|group(?:ed)?_?gemm|groupproblemshape"
        r"|moe_\w*(?:mm|matmul)",
    ),
    (
        _K.MOE,
        r"moe|expert|topk_?gating|finalizekernelvecload|expandinputrows|grouped_topk"
        r"|get_dispatch_layout|routing(?:main|indices|renorm|deepseek|kernel)",
    ),
    (_K.CONV, r"fprop|dgrad|wgrad|implicit_(?:convolve|gemm)|winograd|conv(?:2d|3d|olution)"),
    (
        _K.GEMM,
        r"gemm|gemv|nvjet|xmma|wgmma|cublas|matmul|scaled_mm|b(?<![a-z]b)mm_|mul_mat|w8a8|cijk_"
        r"|cutlass_\d|tensorop|collectivemma|_addmm",
    ),
    (
        _K.STATE_SPACE,
        r"selective_scan|causal_conv1d|mamba|gated_delta|recompute_w_u|(?<![a-z])r?wkv\d?"
        r"|chunk_(?:fwd|bwd|scan|state|local_cumsum|gla|kda)|state_passing",
    ),
    (_K.NORM, _NORM),
    (_K.ROPE, r"rotary|(?:apply|fused|bias)_?rope|(?<![a-z])m?rope"),
    (_K.ACTIVATION, _ACTIVATION),
    (
        _K.SAMPLING,
        r"rejection_\w*sampl|sampling|(?:random|greedy|token|recover\w*)_sampl|logits|penalt"
        r"|top_?p_?renorm|top_?k_?mask|token_bitmask|multinomial",
    ),
    (_K.SORT_SCAN, r"radix|sort|(?:device|block)_?scan|cumsum|gathertopk|topk|tensor_?scan"),
    (_K.QUANTIZE, r"quant"),
    (_K.OPTIMIZER, r"multi_?tensor_?apply|adam|fused_?(?:sgd|lamb)|lamb_stage"),
    (
        _K.COPY,
        r"catarray|gather_kernel|gather_elementwise|index_?select"
        r"|index_?(?:put|copy|elementwise|add|func)|embedding|transpose|c(?<![a-z]c)opy_|_copy"
        r"|permute|memcpy|memset|nchw_?to_?nhwc|nhwc_?to_?nchw|scatter_kernel|masked_scatter",
    ),
    (_K.REDUCTION, r"reduce|soft_?max|nll_loss|cross_entropy|argmax"),
    (_K.ELEMENTWISE, r"elementwise|pointwise|distribution_|f(?<![a-z]f)ill_kernel|triu_tril"),
)
"""Class and pattern for names in lower case, in matching order."""

FAMILIES: tuple[tuple[str, str], ...] = (
    ("inductor", r"^triton_(?:poi|per|red|mix|for|tem)_"),
    ("nccl", r"^nccl"),
    ("tensile", r"cijk_"),
    ("marlin", r"marlin"),
    ("machete", r"machete"),
    ("deep_gemm", r"deep_gemm"),
    ("deep_ep", r"deep_ep"),
    ("flashinfer", r"flashinfer"),
    ("trtllm", r"tensorrt_llm|trtllm|fmhasm\d+"),
    ("flash_attn", r"f(?<![a-z]f)lash::|flash_(?:fwd|bwd)|flashattn"),
    ("cudnn", r"cudnn"),
    ("nvjet", r"^nvjet"),
    ("xmma", r"_xmma_"),
    ("vllm", r"vllm::"),
    ("sglang", r"sglang|sgl_"),
    ("bitsandbytes", r"^k(?:de)?quantizeblockwise|kgemm_4bit|kdequant_mm|kint8vectorquant"),
    ("aten", r"at::native|^at::native|catarraybatchedcopy|^symm_mem::"),
    ("cublas", r"cublas|splitkreduce|gemvx|gemvnsp|gemv2t"),
    ("cutlass", r"cutlass"),
)
"""Library or generator of a name in lower case; the first match decides."""

MULTICAST = r"(?:ll|ld|st)mc(?![a-z])|multimem|nvls"
"""Names in lower case that show NVLink multicast."""

CUSTOM_COMM_FUSED = r"norm|fus(?:ed|ion)|gemm|moe_?(?:reduce|finalize)"
"""Communication kernels that also do other work; names in lower case."""
