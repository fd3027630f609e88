"""A real RMM log: PyTorch on RMM's pool, logged by RMM; and a limit that fails a request."""
import sys, random
out = sys.argv[1]
import torch; torch.cuda.init()  # its CUDA runtime is the one that librmm finds
import rmm, rmm.mr
print("rmm", rmm.__version__)
import torch.nn as nn
random.seed(0)
base = rmm.mr.CudaMemoryResource()
limited = rmm.mr.LimitingResourceAdaptor(base, 256 << 20) if hasattr(rmm.mr, "LimitingResourceAdaptor") else base
log = rmm.mr.LoggingResourceAdaptor(limited, log_file_name=f"{out}/rmm.csv")
rmm.mr.set_current_device_resource(log)
from rmm.pylibrmm.stream import DEFAULT_STREAM
try:
    from rmm.allocators.torch import rmm_torch_allocator
    torch.cuda.memory.change_current_allocator(rmm_torch_allocator)
    m = nn.Sequential(*[nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)) for _ in range(3)]).cuda()
    o = torch.optim.AdamW(m.parameters())
    for it in range(6):
        x = torch.randn(random.randint(1, 512), 512, device="cuda"); m(x).square().mean().backward(); o.step(); o.zero_grad(set_to_none=True)
    torch.cuda.synchronize(); print("torch on rmm: done")
except Exception as e: print("torch on rmm:", repr(e)[:200])
live = []
for it in range(150):
    if live and random.random() < 0.5: live.pop(random.randrange(len(live)))
    else:
        try: live.append(rmm.DeviceBuffer(size=random.randint(1, 3 << 20)))
        except MemoryError as e: print("memory error", str(e)[:80])
try: rmm.DeviceBuffer(size=300 << 20)
except MemoryError as e: print("limit:", str(e)[:120])
live.clear(); log.flush()
