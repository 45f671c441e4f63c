"""`deterministic_mode`: sets every switch that reproducible results of torch need, and puts them back.

Reasons are from PyTorch's documentation ("Reproducibility" unless another page is named):

| switch | set to | why |
|---|---|---|
| `torch.backends.cudnn.benchmark` | False | it chooses a convolution algorithm by timing in each run |
| `torch.backends.cudnn.deterministic` | True | of cuDNN's algorithms only those that are reproducible |
| `torch.use_deterministic_algorithms` | True or "warn" | the same for torch's own operations; those without such an \
algorithm raise (or warn, and stay as they were) |
| `torch._inductor.config.deterministic` | True | torch.compile chooses nothing by timing (follows the one above) |
| `torch.backends.mkldnn.deterministic` | True | the same for oneDNN |
| `torch.cuda.tunable` | off | TunableOp chooses matrix multiplications by timing ("TunableOp") |
| `CUBLAS_WORKSPACE_CONFIG` | :4096:8 | cuBLAS gives the same result in several streams only with a fixed workspace |
| `torch.utils.deterministic.fill_uninitialized_memory` | False | filling every `torch.empty` costs time, and only \
matters to a program that reads memory it never wrote |
| TF32: `torch.backends.cuda.matmul.allow_tf32`, `torch.backends.cudnn.allow_tf32`, float32 matmul precision, \
`fp32_precision` of cuda and mkldnn | off | no cause of differences from run to run, but one from GPU to GPU \
("Numerical accuracy") |
| `torch.backends.cudnn.enabled` | only with ``cudnn=False`` | the last resort: PyTorch's own convolutions |
| `torch.set_num_threads`, `torch.set_num_interop_threads` | only with ``threads=`` | on a CPU, sums are split among threads |

Not changed, because they are reproducible on one machine: reduced-precision reductions of float16 and bfloat16, the
choice of a linear algebra library. docs/training-gpu.md covers RNNs, attention and NCCL.
"""
