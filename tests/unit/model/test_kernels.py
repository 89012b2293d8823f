"""Kernel names as real programs spell them, each with the class it must get."""

from __future__ import annotations

import pytest

from tracekit.errors import UsageError
from tracekit.model.kernels import Classifier, KernelKind, classify, classify_parts

NAMES: dict[KernelKind, tuple[str, ...]] = {
    KernelKind.COMM: (
        "ncclAllReduceRingLLKernel_sum",
        "ncclKernel_AllReduce_RING_LL_Sum_half(ncclDevComm*, unsigned long, ncclWork*)",
        "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)",
        "ncclKernel_AllReduce_TREE_LL_Sum_float",
        "ncclKernel_AllGather_RING_LL_Sum_int8_t",
        "ncclKernel_ReduceScatter_RING_LL_Sum_half",
        "ncclKernel_ReduceScatter_RING_LL_Sum___nv_bfloat16",
        "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t",
        "ncclDevKernel_AllReduce_Sum_f16_RING_LL",
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)",
        "ncclDevKernel_AllReduce_Sum_bf16_TREE_LL",
        "ncclDevKernel_AllGather_RING_LL",
        "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL",
        "ncclDevKernel_Broadcast_RING_LL",
        "ncclDevKernel_AllGatherV_RING_LL",
        "ncclDevKernel_Reduce_Sum_f32_RING_LL",
        "ncclDevKernel_SendRecv",
        "ncclDevKernel_Generic",
        "ncclDevKernel_Generic_1",
        "ncclSymDevKernel_AllReduce_RSxLD_AGxST_sum_bf16(ncclSymDevArgs)",
        "ncclSymDevKernel_AllReduce_AGxLL_R_sum_f16",
        "ncclSymDevKernel_AllReduce_RSxLDMC_AGxSTMC_sum_f8e5m2",
        "ncclSymDevKernel_AllGather_LL",
        "ncclSymDevKernel_AllGather_LLMC",
        "ncclSymDevKernel_AllGather_ST",
        "ncclSymDevKernel_ReduceScatter_LL_sum_f8e5m2",
        "ncclSymkDevKernel_AllReduce_AGxLLMC_R_sum_bf16",
        "ncclSymkDevKernel_AllReduce_RSxTmaLD_AGxTmaST_sum_f16",
        "ncclSymkDevKernel_AllGather_STMC",
        "ncclSymkDevKernel_AllGather_TmaST",
        "ncclSymkDevKernel_AllGather_RailRing_LsaSTMC",
        "ncclSymkDevKernel_ReduceScatter_RailA2A_LsaLDMC_sum_bf16",
        "nccldevkernel_allreduce_sum_bf16_ring_ll",
        "nccl:all_reduce",
        "nccl:_reduce_scatter_base",
        "ncclAllReduce",
    ),
    KernelKind.CUSTOM_COMM: (
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*)",
        "void vllm::cross_device_reduce_2stage<half, 8>(vllm::RankData*)",
        "cross_device_reduce_half_butterfly",
        "(anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>",
        "one_shot_all_reduce_kernel",
        "two_shot_all_reduce_kernel_inplace",
        "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_twoshot_sync<0>(int)",
        "tensorrt_llm::_v1::kernels::ar_fusion::allreduce_fusion_kernel_oneshot_lamport<2>",
        "moereduce_allreduce_fusion_kernel_oneshot_lamport",
        "moefinalize_allreduce_fusion_kernel_oneshot_lamport",
        "lamport_style_one_shot_all_reduce_norm_kernel",
        "oneShotAllReduceKernel",
        "twoShotAllReduceKernel",
        "lowPrecisionTwoShotAllReduceKernel",
        "fused_reducescatter_allreduce_kernel",
        "fused_allreduce_allgather_kernel",
        "moeAllToAllKernel",
        "moeA2ADispatchKernel",
        "moeA2ACombineKernel",
        "helixAllToAllKernel",
        "deep_ep::intranode::dispatch",
        "deep_ep::intranode::combine",
        "deep_ep::intranode::notify_dispatch",
        "deep_ep::intranode::cached_notify_combine",
        "deep_ep::internode_ll::dispatch",
        "deep_ep::internode_ll::combine",
        "allreduceAllPairs",
        "executionKernel",
        "dlslime::intranode_alltoall_kernel",
    ),
    KernelKind.GEMM: (
        "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN",
        "nvjet_tst_96x64_64x10_1x2_h_bz_bias_TNN",
        "nvjet_tst_320x64_64x4_2x1_2cta_v_bz_TNT",
        "nvjet_sm90_tst_64x208_64x6_2x1_v_bz_splitK_TNT",
        "nvjet_tss_256x128_64x4_1x2_h_bz_coopA_TNT",
        "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_cublas",
        "sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize64x64x128_warpgroupsize1x1x1",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64",
        "ampere_sgemm_32x128_tn",
        "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn",
        "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_tn>(T1::Params)",
        "cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x1_tn_align8",
        "void internal::gemvx::kernel<int, int, __nv_bfloat16, float>(T1)",
        "void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 7168u>(float *)",
        "_w8a8_triton_block_scaled_mm",
        "DeviceGemmFp4GemmSm100",
        "_matmul_ogs_NNT_bf16xbf16xbf16_16x256x128x1",
        "fused_a_gemm_kernel",
        "cublasLtMatmulKernel",
        "Cijk_Alik_Bljk_BBS_BH_MT128x128x64",
    ),
    KernelKind.MOE_GEMM: (
        "fused_moe_kernel",
        "grouped_gemm_kernel",
        "bmm_E2m1_E2m1E2m1_Fp32_t128x8x512",
        "bmm_Bfloat16_E2m1E2m1_Fp32_t128x16x256",
    ),
    KernelKind.GEMM_HELPER: ("splitKreduce_kernel", "void cublasLt::splitKreduce_kernel<32>(int)"),
    KernelKind.ATTENTION: (
        "flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 64, 64, 4>>",
        "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128>, false>(int)",
        "flash::flash_fwd_splitkv_combine_kernel<4>",
        "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<X>>>(int)",
        "flash::prepare_varlen_num_blocks_kernel",
        "fmhaSm100fKernel_QkvBfloat16OBfloat16H128PagedKvCausalP16VarSeqQ128Kv128Persistent",
        "fmhaSm100fKernel_QkvE4m3OBfloat16H128PagedKvMultiCtasKvVarSeqQ8Kv128StaticSwapsAbForGen",
        "void flashinfer::BatchPrefillWithPagedKVCacheKernel<flashinfer::KernelTraits<1>>(int)",
        "BatchDecodeWithPagedKVCacheKernel<2u, 8u>",
        "BatchDecodeWithPagedKVCacheKernelMLA<2u, 8u>",
        "PersistentVariableLengthMergeStatesKernel",
        "paged_attention_v1_kernel",
        "paged_attention_v2_kernel",
        "paged_attention_v2_reduce_kernel",
        "kernel_unified_attention_2d",
        "kernel_unified_attention_3d",
        "sm90::fwd::sparse_attn_fwd_kernel",
        "<unnamed>::sparse_attention_kernel<(bool)1>",
        "softmax_warp_forward",
    ),
    KernelKind.DEQUANT: (
        "void kDequantizeBlockwise<half, 512, 64, 8, NF4>(float *, unsigned char *)",
        "kdequant_mm_int32_fp16",
        "vllm::awq::dequantize_weights",
        "awq_dequantize_kernel",
        "reconstruct_gptq_kernel",
        "reconstruct_exllama_4bit_kernel",
        "Code1x16Dequant",
        "Code2x8Dequant",
        "dequantFP8Kernel",
        "dequantize_int4_kernel",
    ),
    KernelKind.GEMM_QUANT: (
        "void marlin::Marlin<__nv_bfloat16, 256, 1, 8>(int)",
        "marlin_moe_wna16::Marlin<__nv_bfloat16, 256>",
        "Marlin",
        "Marlin_24",
        "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<int, "
        "machete::MacheteCollectiveMma<int>>>(T1::Params)",
        "kgemm_4bit_inference_naive<__nv_bfloat16, 128, 16>",
        "vllm::awq::gemm_forward_4bit_cuda_m16nXk32",
        "awq_gemm_kernel",
        "gemm_half_q_half_gptq_2bit_kernel",
        "gemm_half_q_half_gptq_3bit_kernel",
        "gemm_half_q_half_gptq_4bit_kernel",
        "gemm_half_q_half_gptq_8bit_kernel",
        "gemm_half_q_half_alt_4bit_kernel",
        "NUQ4MatMulKernel",
        "Code1x16MatVec",
        "void cutlass::Kernel<cutlass::gemm::kernel::GemmFpAIntB<int>>(T1::Params)",
        "fpA_intB_gemm_kernel",
        "sm90_generic_mixed_gemm_kernelLauncher",
        "dequantize_mul_mat_vec_q4_0_cuda",
        "mul_mat_q<(ggml_type)12, 128, false>",
        "fused_moe_kernel_gptq_awq",
        "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x256x128x1",
    ),
    KernelKind.QUANTIZE: (
        "kQuantizeBlockwise<half, 4096, 4, 0, 0>",
        "kInt8VectorQuant",
        "vllm::scaled_fp8_quant_kernel<c10::BFloat16>",
        "static_scaled_int8_quant_kernel",
        "dynamic_scaled_int8_quant_kernel",
        "per_token_group_quant_8bit_kernel<c10::BFloat16, __nv_fp8_e4m3, true>",
        "_fp8_activation_quantize_kernel",
        "cvt_fp16_to_fp4",
        "nvfp4_quant_kernel",
        "scale_1x128_kernel",
        "quantize_with_block_size",
        "quantize_q8_1",
    ),
    KernelKind.REPACK: (
        "marlin::gptq_marlin_repack_kernel<256, 4, 0, 0>",
        "marlin_repack_kernel",
        "shuffle_4bit_kernel",
        "make_sequential_4bit_kernel",
        "permute_cols_kernel",
        "machete::prepack_B_kernel",
    ),
    KernelKind.KV_CACHE: (
        "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, __nv_bfloat16, "
        "(vllm::Fp8KVCacheDataType)0>(int)",
        "vllm::reshape_and_cache_kernel<half>",
        "copy_blocks_kernel",
        "reshape_and_cache_dattn_kernel",
        "_compute_slot_mapping_kernel",
        "sglang::store_kvcache<512l, 512l, 1, false, long>",
        "AppendPagedKVCacheKernel",
        "AppendPagedKVMlaCacheKernel",
        "RopeQuantizeAppendPagedKVCacheKernel",
        "NVFP4QuantizeAppendPagedKVCacheKernel",
        "ConcatMLAKKernel",
        "nvfp4_paged_dequant_kernel",
        "nvfp4_dequant_vectorized_kernel",
        "convert_fp8_kernel",
    ),
    KernelKind.MOE: (
        "topkGatingSoftmax",
        "finalizeKernelVecLoad",
        "tensorrt_llm::kernels::cutlass_kernels::fusedBuildExpertMapsSortFirstTokenKernel",
        "tensorrt_llm::kernels::cutlass_kernels::expandInputRowsKernel<half>",
        "tensorrt_llm::kernels::cutlass_kernels::finalizeMoeRoutingKernel<half>",
        "vllm::moe::moe_align_block_size_kernel",
        "deep_ep::layout::get_dispatch_layout",
    ),
    KernelKind.NORM: (
        "vllm::rms_norm_kernel<c10::BFloat16>",
        "fused_add_rms_norm_kernel",
        "vllm::rms_norm_dynamic_per_token_quant_kernel",
        "flashinfer::norm::RMSNormKernel<8u, __nv_bfloat16>",
        "vectorized_layer_norm_kernel",
    ),
    KernelKind.ACTIVATION: (
        "vllm::act_and_mul_kernel<c10::BFloat16, &vllm::silu_kernel>",
        "flashinfer::activation::act_and_mul_kernel<half>",
    ),
    KernelKind.ROPE: ("vllm::rotary_embedding_kernel<c10::BFloat16, true>",),
    KernelKind.SAMPLING: (
        "rejection_greedy_sample_kernel",
        "void flashinfer::sampling::TopKTopPSamplingFromProbKernel<1024u>(int)",
    ),
    KernelKind.SORT_SCAN: ("void cub::DeviceRadixSortOnesweepKernel<int>(int)",),
    KernelKind.ELEMENTWISE: (
        "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)",
        "unrolled_elementwise_kernel",
        "triton_poi_fused_add_mul_0",
        "triton_poi_fused_all_reduce_wait_tensor_0",
    ),
    KernelKind.COPY: (
        "CatArrayBatchedCopy_vectorized",
        "vectorized_gather_kernel",
        "at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(int)>",
    ),
    KernelKind.REDUCTION: (
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(T3)",
        "triton_red_fused__to_copy_add_mean_1",
        "block_all_reduce_sum_f32_f32_kernel",
    ),
    KernelKind.STATE_SPACE: ("selective_scan_fwd_kernel", "causal_conv1d_fwd_kernel"),
    KernelKind.CONV: ("sm80_xmma_fprop_implicit_gemm_f16",),
    KernelKind.OPTIMIZER: ("at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor<float>>",),
    KernelKind.UNCLASSIFIED: ("foo", "", "device_kernel", "Kernel2", "kernel", "_fwd_kernel"),
}


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, names in NAMES.items() for name in names]
)
def test_every_name_has_one_class(kind: KernelKind, name: str) -> None:
    answer = classify(name)
    assert answer.kind is kind
    assert answer.is_comm is (kind in (KernelKind.COMM, KernelKind.CUSTOM_COMM))
    assert answer.is_gemm is (kind in (KernelKind.GEMM, KernelKind.GEMM_QUANT, KernelKind.MOE_GEMM))
    assert classify_parts(name).kind is kind
    assert Classifier().classify(name) == answer


def test_every_class_has_a_name() -> None:
    assert set(NAMES) == set(KernelKind)


@pytest.mark.parametrize(
    ("name", "op", "reduction", "dtype", "algorithm"),
    [
        ("ncclAllReduceRingLLKernel_sum", "AllReduce", "sum", None, "RingLL"),
        ("ncclKernel_AllReduce_RING_LL_Sum_half(x)", "AllReduce", "sum", "f16", "RING_LL"),
        ("ncclKernel_AllGather_RING_LL_Sum_int8_t", "AllGather", "sum", "i8", "RING_LL"),
        (
            "ncclKernel_ReduceScatter_RING_LL_Sum___nv_bfloat16",
            *("ReduceScatter", "sum", "bf16", "RING_LL"),
        ),
        ("ncclDevKernel_AllReduce_Sum_bf16_TREE_LL", "AllReduce", "sum", "bf16", "TREE_LL"),
        ("ncclDevKernel_AllGather_RING_LL", "AllGather", None, None, "RING_LL"),
        ("ncclDevKernel_AllGatherV_RING_LL", "AllGatherV", None, None, "RING_LL"),
        ("ncclDevKernel_Broadcast_RING_LL", "Broadcast", None, None, "RING_LL"),
        ("ncclDevKernel_Reduce_Sum_f32_RING_LL", "Reduce", "sum", "f32", "RING_LL"),
        (
            "ncclDevKernel_AllReduce_SumPostDiv_u8_RING_LL",
            "AllReduce",
            "sumpostdiv",
            "u8",
            "RING_LL",
        ),
        (
            "ncclSymDevKernel_AllReduce_RSxLD_AGxST_sum_bf16(ncclSymDevArgs)",
            *("AllReduce", "sum", "bf16", "RSxLD_AGxST"),
        ),
        ("ncclSymDevKernel_ReduceScatter_LL_sum_f8e5m2", "ReduceScatter", "sum", "f8e5m2", "LL"),
        (
            "ncclSymkDevKernel_ReduceScatter_RailA2A_LsaLDMC_sum_bf16",
            *("ReduceScatter", "sum", "bf16", "RailA2A_LsaLDMC"),
        ),
        ("nccldevkernel_allreduce_sum_bf16_ring_ll", "AllReduce", "sum", "bf16", "ring_ll"),
        ("nccl:all_reduce", "AllReduce", None, None, None),
        ("nccl:_reduce_scatter_base", "ReduceScatter", None, None, None),
        ("nccl:ALLTOALL_BASE", "AlltoAll", None, None, None),
        ("nccl:coalesced", None, None, None, None),
        ("ncclAllReduce", "AllReduce", None, None, None),
        ("vllm::cross_device_reduce_2stage<half, 8>", "AllReduce", None, None, None),
        ("moereduce_allreduce_fusion_kernel_oneshot_lamport", "AllReduce", None, None, None),
        ("fused_reducescatter_allreduce_kernel", None, None, None, None),
        ("deep_ep::internode_ll::combine", "AlltoAll", None, None, None),
        ("moeA2ADispatchKernel", "AlltoAll", None, None, None),
        ("executionKernel", None, None, None, None),
        ("ampere_sgemm_32x128_tn", None, None, None, None),
    ],
)
def test_operation_type_and_suffix(
    name: str, op: str | None, reduction: str | None, dtype: str | None, algorithm: str | None
) -> None:
    answer = classify(name)
    assert (answer.op, answer.reduction, answer.dtype, answer.algorithm) == (
        *(op, reduction, dtype),
        algorithm,
    )
    assert answer.named_op == op


@pytest.mark.parametrize(
    ("name", "multicast"),
    [
        ("ncclSymDevKernel_AllReduce_RSxLDMC_AGxSTMC_sum_f8e5m2", True),
        ("ncclSymDevKernel_AllGather_LLMC", True),
        ("ncclSymkDevKernel_AllGather_RailRing_LsaSTMC", True),
        ("ncclSymkDevKernel_AllGather_TmaST", False),
        ("ncclSymDevKernel_AllReduce_RSxLD_AGxST_sum_bf16", False),
        ("(anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>", True),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", False),
    ],
)
def test_multicast_shows_in_the_name(name: str, multicast: bool) -> None:
    assert classify(name).multicast is multicast


def test_suffix_is_not_the_protocol() -> None:
    answer = classify("ncclDevKernel_AllReduce_Sum_bf16_RING_LL")
    assert answer.algorithm_note == "name suffix RING_LL (not evidence of protocol)"
    assert classify("ncclDevKernel_SendRecv").algorithm_note is None


@pytest.mark.parametrize(
    ("name", "named_op"),
    [
        ("ncclDevKernel_SendRecv", "SendRecv"),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t", "SendRecv"),
        ("ncclDevKernel_Generic", None),
        ("ncclDevKernel_Generic_1", None),
    ],
)
def test_generic_names_leave_the_operation_unknown(name: str, named_op: str | None) -> None:
    answer = classify(name)
    assert answer.kind is KernelKind.COMM
    assert answer.op is None
    assert answer.named_op == named_op


@pytest.mark.parametrize(
    ("name", "fused"),
    [
        ("lamport_style_one_shot_all_reduce_norm_kernel", True),
        ("flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_twoshot_sync<0>", True),
        ("moefinalize_allreduce_fusion_kernel_oneshot_lamport", True),
        ("gemm_allreduce_kernel", True),
        ("one_shot_all_reduce_kernel", False),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", False),
        ("vllm::rms_norm_kernel<float>", False),
    ],
)
def test_fused_communication(name: str, fused: bool) -> None:
    assert classify(name).fused is fused


def test_short_name_is_asked_last() -> None:
    flash = "void cutlass::device_kernel<flash::FlashAttnFwdSm90<int>>(T1::Params)"
    gemm = "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<int>>(T1::Params)"
    machete = "void cutlass::device_kernel<machete::MacheteCollectiveMma<int>>(T1::Params)"
    kinds = [classify_parts(name, None, "device_kernel").kind for name in (flash, gemm, machete)]
    assert kinds == [KernelKind.ATTENTION, KernelKind.GEMM, KernelKind.GEMM_QUANT]


def test_mangled_name_stands_in() -> None:
    mangled = (
        "_ZN7cutlass13device_kernelIN5flash19enable_sm90_or_laterINS1_16FlashAttnFwdSm90IiEEEEEE"
        "vNT_6ParamsE"
    )
    answer = classify_parts(None, mangled, "device_kernel")
    assert (answer.kind, answer.family) == (KernelKind.ATTENTION, "flash_attn")
    unknown = classify_parts("void <unnamed>::foo<int>(T1)", "_Z3fooIiEvT_", "foo")
    assert (unknown.kind, unknown.name) == (
        KernelKind.UNCLASSIFIED,
        "void <unnamed>::foo<int>(T1)",
    )
    assert classify_parts(None, None, None).kind is KernelKind.UNCLASSIFIED


def test_mangled_source_file_names_are_no_evidence() -> None:
    name = "_ZN2at6native44_GLOBAL__N__50c743a2_11_gemm_norm_cu_89862edb3fooIiEEvT_"
    assert classify(name).kind is KernelKind.UNCLASSIFIED


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("splitKreduce_kernel", KernelKind.GEMM_HELPER),
        ("cross_device_reduce", KernelKind.CUSTOM_COMM),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", KernelKind.COMM),
        ("fused_moe_marlin_gemm", KernelKind.GEMM_QUANT),
        ("fused_moe_bf16_gemm", KernelKind.MOE_GEMM),
        ("w8a8_block_fp8_matmul", KernelKind.GEMM),
    ],
)
def test_order_of_the_table(name: str, kind: KernelKind) -> None:
    assert classify(name).kind is kind


def test_fused_dequantisation_is_no_standalone_kernel() -> None:
    kinds = [classify("void marlin::Marlin<half, 256>(int)").kind for _ in range(100)]
    assert kinds.count(KernelKind.DEQUANT) == 0
    assert kinds.count(KernelKind.GEMM_QUANT) == 100


def test_separate_dequantisation() -> None:
    assert classify("kDequantizeBlockwise<half, 512, 64, 8, NF4>").kind is KernelKind.DEQUANT


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("nccl:all_reduce", "nccl"),
        ("nvjet_tst_96x64_64x10_1x2_h_bz_bias_TNN", "nvjet"),
        ("void marlin::Marlin<half>(int)", "marlin"),
        ("void cutlass::device_kernel<machete::MacheteCollectiveMma<int>>(int)", "machete"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_s16816gemm>(T1::Params)", "cutlass"),
        ("Cijk_Alik_Bljk_BBS_BH", "tensile"),
        ("triton_poi_fused_add_0", "inductor"),
        ("void at::native::reduce_kernel<512>(T3)", "aten"),
        ("foo", None),
    ],
)
def test_family(name: str, family: str | None) -> None:
    assert classify(name).family == family


def test_overrides_come_first_and_see_the_whole_name() -> None:
    custom = Classifier(
        [("attention", r"paged_kv_read"), (KernelKind.CUSTOM_COMM, r"^my_ALL_reduce<int>")]
    )
    assert custom.classify("paged_kv_read").kind is KernelKind.ATTENTION
    mine = custom.classify("my_all_reduce<int>(float *)")
    assert (mine.kind, mine.op) == (KernelKind.CUSTOM_COMM, "AllReduce")
    assert custom.classify("ampere_sgemm_32x128_tn").kind is KernelKind.GEMM


@pytest.mark.parametrize("kind", KernelKind)
def test_a_pattern_gives_any_class(kind: KernelKind) -> None:
    custom = Classifier([(kind.value, "^my_secret_kernel")])
    assert custom.classify("my_secret_kernel<int>(float *)").kind is kind
    assert custom.classify("your_secret_kernel").kind is KernelKind.UNCLASSIFIED


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        # The namespace says all-reduce, gemm or attention; the function does not.
        ("void flashinfer::trtllm_mnnvl_allreduce::rmsNormLamport<half>(T1)", KernelKind.NORM),
        ("void ns::allreduce::helper<int>(T1)", KernelKind.UNCLASSIFIED),
        ("void deep_gemm::sm100_paged_mqa_logits<1u, 64u>(float*)", KernelKind.ATTENTION),
        ("void nvfp4_attention_sm120::scaled_fp4_quant_kernel<128>(T1)", KernelKind.QUANTIZE),
        # The word "dequantise" without weights that are expanded.
        ("void vllm::gather_and_maybe_dequant_cache<half, 576>(T1)", KernelKind.KV_CACHE),
        ("void k_get_rows<32, 2, &(dequantize_q4_0(void const*))>(T1)", KernelKind.COPY),
        ("k::computeFP8DequantScaleKernel(float const**, long const*)", KernelKind.MOE),
        ("void k_foo<&(dequantize_q4_0(void const*))>(T1)", KernelKind.UNCLASSIFIED),
        # Words inside words.
        ("fast_hadamard_kernel", KernelKind.UNCLASSIFIED),
        ("_gemma_rmsnorm_kernel", KernelKind.NORM),
        ("_engram_gate_kernel", KernelKind.UNCLASSIFIED),
    ],
)
def test_the_function_decides_before_its_surroundings(name: str, kind: KernelKind) -> None:
    assert classify(name).kind is kind


def test_overrides_are_checked() -> None:
    with pytest.raises(UsageError, match="'gem' does not exist; one of: activation, attention"):
        Classifier([("gem", "x")])
    with pytest.raises(UsageError, match=r"'\(' is no regular expression"):
        Classifier([("gemm", "(")])
