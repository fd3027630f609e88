"""Processes that end in every way, tensors alive or not; prints how many ended as they should.

usage: exits.py [COUNT]
"""

import functools
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

PLAIN = "import torch; x = torch.ones(1 << 20, device='cuda'); "
START = "import omniheap.torch, torch; omniheap.torch.enable(); x = torch.ones(1 << 20, device='cuda'); "
STEP = "m = torch.nn.Linear(256, 256).cuda(); o = torch.optim.AdamW(m.parameters()); l = m(torch.randn(8, 256, device='cuda')).sum(); l.backward(); o.step(); "
SIDE = "s = torch.cuda.Stream(); x.record_stream(s); "
WAYS = {
    "normal": (STEP, 0),
    "tensors freed": (STEP + "del m, o, l, x", 0),
    "other streams": (SIDE + STEP, 0),
    "exception": (STEP + "raise ValueError('on purpose')", 1),
    "sys.exit in a step": ("import sys; m = torch.nn.Linear(4, 4).cuda(); m.register_forward_hook(lambda *a: sys.exit(3)); m(torch.ones(4, device='cuda'))", 3),
    "work pending": ("y = x\nfor _ in range(200): y = y @ torch.ones(1 << 20, 1, device='cuda') * x", 0),
    # Python ends such a thread inside of PyTorch, which PyTorch does not survive by itself either: as PyTorch alone ends, so must we.
    "thread alive": ("import threading, time; threading.Thread(target=lambda: [x.add_(1) for _ in range(100000)], daemon=True).start(); time.sleep(0.05)", None),
    "graph alive": ("g = torch.cuda.CUDAGraph(); torch.cuda.synchronize()\nwith torch.cuda.graph(g): y = x * 2\ng.replay()", 0),
}


@functools.cache
def like_plain(way):
    return subprocess.run([sys.executable, "-c", PLAIN + WAYS[way][0]], capture_output=True).returncode


def one(way):
    code, expected = WAYS[way]
    expected = like_plain(way) if expected is None else expected
    done = subprocess.run([sys.executable, "-c", START + code], capture_output=True, text=True)
    return way, done.returncode == expected, f"exit {done.returncode}, expected {expected}: {done.stderr[-300:]}"


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    ways = [list(WAYS)[index % len(WAYS)] for index in range(count)]
    ends = []
    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        for end in pool.map(one, ways):
            ends.append(end)
            if len(ends) % 25 == 0:
                print(f"{sum(fine for _, fine, _ in ends)} of {len(ends)} ended as they should", flush=True)
    for way in WAYS:
        mine = [fine for name, fine, _ in ends if name == way]
        print(f"{way:20} {sum(mine)}/{len(mine)}")
    for way, fine, line in [end for end in ends if not end[1]][:6]:
        print(f"FAILED {way}: {line}")
    sys.exit(any(not fine for _, fine, _ in ends))


if __name__ == "__main__":
    main()
