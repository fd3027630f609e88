"""Small real recordings: snap.py OUT CASE. One process a case, because allocator settings are read once."""
import sys, os, json, random, pickle, gzip
out, case = sys.argv[1:3]
if case == "expandable": os.environ["PYTORCH_CUDA_ALLOC_CONF"] = os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0); random.seed(0); dev = "cuda"
class UB(nn.Module):
    def __init__(s, i, o):
        super().__init__(); s.n = nn.GroupNorm(8, i); s.c = nn.Conv2d(i, o, 3, padding=1); s.d = nn.Conv2d(o, o, 3, padding=1); s.k = nn.Conv2d(i, o, 1)
    def forward(s, x): return s.k(x) + s.d(F.silu(s.c(F.silu(s.n(x)))))
class UNet(nn.Module):
    def __init__(s, ch=(128, 256, 512, 512)):
        super().__init__(); s.i = nn.Conv2d(4, ch[0], 3, padding=1); s.dn = nn.ModuleList(); s.up = nn.ModuleList(); p = ch[0]
        for c in ch: s.dn.append(UB(p, c)); p = c
        for c in reversed(ch): s.up.append(UB(p + c, c)); p = c
        s.o = nn.Conv2d(p, 4, 3, padding=1)
    def forward(s, x):
        x = s.i(x); sk = []
        for d in s.dn: x = d(x); sk.append(x); x = F.avg_pool2d(x, 2)
        for u in s.up: k = sk.pop(); x = u(torch.cat([F.interpolate(x, size=k.shape[2:]), k], 1))
        return s.o(x)
def unet(n, steps):
    m = UNet().to(dev).half().eval()
    with torch.no_grad():
        for it in range(n):
            h, w = random.choice([(64, 64), (96, 64), (64, 112), (128, 128), (80, 144)]); B = random.choice([1, 2, 4])
            x = torch.randn(B, 4, h, w, device=dev, dtype=torch.half)
            for t in range(steps): c = m(x); u = m(x); x = x - 0.1 * (u + 7.5 * (c - u))
    torch.cuda.synchronize()
def train(n):
    m = UNet((32, 64, 128)).to(dev); o = torch.optim.AdamW(m.parameters(), lr=1e-4)
    for it in range(n):
        x = torch.randn(random.choice([2, 3, 5]), 4, random.choice([64, 96, 128]), 96, device=dev)
        F.mse_loss(m(x), x).backward(); o.step(); o.zero_grad(set_to_none=True)
    torch.cuda.synchronize()
def streams(n):
    m = nn.Sequential(*[nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)) for _ in range(4)]).to(dev).half().eval()
    ss = [torch.cuda.Stream() for _ in range(4)]
    with torch.no_grad():
        for it in range(n):
            s = ss[it % 4]; B = random.randint(1, 512)
            x = torch.randn(B, 1024, device=dev, dtype=torch.half); s.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(s): y = m(x); x.record_stream(s); z = y.float().softmax(-1); del y
            if it % 7 == 0: torch.cuda.current_stream().wait_stream(s); z.record_stream(torch.cuda.current_stream()); q = z * 2
    torch.cuda.synchronize()
def shortage():
    torch.cuda.set_per_process_memory_fraction(0.01); keep = []
    try:
        while True: keep.append(torch.empty(random.randint(20, 60) << 20, dtype=torch.uint8, device=dev))
    except torch.OutOfMemoryError: pass
    keep = keep[::2]
    try: big = torch.empty(700 << 20, dtype=torch.uint8, device=dev)
    except torch.OutOfMemoryError as e: print("OOM", str(e)[:160])
    return keep
history = dict(unet=dict(), stacks=dict(context="all", stacks="python"), train=dict(), streams=dict(), expandable=dict(), shortage=dict(context="alloc", stacks="python"), ring=dict(max_entries=1500))[case]
history.setdefault("context", None)
torch.cuda.init(); torch.empty(1, device=dev)
torch.cuda.memory._record_memory_history(enabled="all", **{"max_entries": 200_000, **history})
kept = dict(unet=lambda: unet(3, 2), stacks=lambda: unet(1, 1), train=lambda: train(3), streams=lambda: streams(60), expandable=lambda: unet(3, 2), shortage=shortage, ring=lambda: train(4))[case]()
path = f"{out}/{case}.pickle"
torch.cuda.memory._dump_snapshot(path)
st = torch.cuda.memory_stats()
snap = torch.cuda.memory._snapshot()
res = dict(case=case, torch=torch.__version__, peak_requested=st["requested_bytes.all.peak"], peak_active=st["active_bytes.all.peak"], peak_allocated=st["allocated_bytes.all.peak"], peak_reserved=st["reserved_bytes.all.peak"], live=st["requested_bytes.all.current"], reserved=st["reserved_bytes.all.current"], device_allocs=st["num_device_alloc"], device_frees=st["num_device_free"], ooms=st["num_ooms"], allocs=st["allocation.all.allocated"], events=len(snap["device_traces"][0]), actions={})
for e in snap["device_traces"][0]: res["actions"][e["action"]] = res["actions"].get(e["action"], 0) + 1
raw = open(path, "rb").read()
res["bytes"] = len(raw); res["gz"] = len(gzip.compress(raw, 9))
if len(raw) > 1_500_000: os.remove(path); open(path + ".gz", "wb").write(gzip.compress(raw, 9))
json.dump(res, open(f"{out}/{case}.json", "w")); print(json.dumps(res))
