/* As much of CUDA's header as the adapters name. */
#pragma once

typedef struct CUstream_st *cudaStream_t;
