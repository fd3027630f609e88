"""Sleep, wake and activations on a GPU, in one process and with a second one beside it. Prints a table; ends with 1 where something failed.

usage: sleep.py [--small] [PART...]
--small is for GPUs with less than 100 GiB. The parts are those of `main`; without a name, all of them.
"""

import ctypes
import gc
import mmap
import os
import statistics
import subprocess
import sys
import tempfile
import time

GIB, MIB = 1 << 30, 1 << 20


def watch():
    """The second process: says how much of the device is free, takes memory and drops it. It needs the driver alone."""
    cuda = ctypes.CDLL("libcuda.so.1")

    def call(name, *arguments):
        return getattr(cuda, name)(*arguments)

    device, context, held = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    codes = [call("cuInit", 0), call("cuDeviceGet", ctypes.byref(device), 0), call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device), call("cuCtxSetCurrent", context)]
    print(max(codes), flush=True)
    for line in sys.stdin:
        words = line.split()
        if words[0] == "free":
            free, total = ctypes.c_size_t(), ctypes.c_size_t()
            call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
            print(free.value, flush=True)
        elif words[0] == "take":
            size = ctypes.c_size_t(int(words[1]))
            code = call("cuMemAlloc_v2", ctypes.byref(held), size) or call("cuMemsetD8_v2", held, 7, size) or call("cuCtxSynchronize")
            print(code, flush=True)
        else:
            print(call("cuMemFree_v2", held), flush=True)


class Watcher:
    def __init__(self):
        self.process = subprocess.Popen([sys.executable, __file__, "--watch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline().strip() == "0", "the second process has no device"

    def ask(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def end(self):
        self.process.stdin.close()
        self.process.wait()


ROWS, FAILED = [], []


def row(name, figure, wanted=None, holds=True):
    ROWS.append((name, figure, wanted or "", "" if wanted is None else "ok" if holds else "FAIL"))
    print("  ".join(filter(None, ROWS[-1])), flush=True)
    if not holds:
        FAILED.append(name)


def raises(kind, call, *words):
    """Returns True if a call raises just this, with these words."""
    try:
        call()
    except Exception as error:
        return type(error) is kind and all(word in str(error) for word in words)
    return False


def attention(torch, block, x, width):
    """Causal attention of a block, with heads of 64."""
    batch, steps, _ = x.shape
    heads = block.attend(block.norm1(x)).view(batch, steps, 3, width // 64, 64).permute(2, 0, 3, 1, 4)
    mixed = torch.nn.functional.scaled_dot_product_attention(*heads.unbind(0), is_causal=True)
    return block.project(mixed.transpose(1, 2).reshape(batch, steps, width))


def build(torch, depth, width, vocabulary, length):
    nn, F = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.attend, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            x = x + attention(torch, self, x, width)
            return x + self.narrow(F.gelu(self.widen(self.norm2(x))))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
            self.blocks = nn.ModuleList(Block() for _ in range(depth))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

        def forward(self, tokens):
            x = self.words(tokens) + self.places.weight[: tokens.shape[1]]
            for block in self.blocks:
                x = block(x)
            return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1)[:-1], tokens.flatten()[1:])

    with torch.device("cuda"):
        return Model()


def build_experts(torch, depth, width, vocabulary, length, experts=4, chosen=2):
    """A mixture of experts whose blocks are checkpointed; the loss is computed for a part of the tokens at a time."""
    from torch.utils.checkpoint import checkpoint

    nn, F = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.attend, self.project, self.gate = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.Linear(width, experts)
            self.experts = nn.ModuleList(nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(experts))

        def forward(self, x):
            x = x + attention(torch, self, x, width)
            flat = self.norm2(x).flatten(0, 1)
            weights, which = self.gate(flat).softmax(-1).topk(chosen, -1)
            result = torch.zeros_like(flat)
            for at, expert in enumerate(self.experts):
                rows, place = torch.where(which == at)
                result = result.index_add(0, rows, expert(flat[rows]).to(flat.dtype) * weights[rows, place, None].to(flat.dtype))
            return x + result.view_as(x)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
            self.blocks = nn.ModuleList(Block() for _ in range(depth))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

        def part(self, x, tokens):
            return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), tokens.flatten(), reduction="sum")

        def forward(self, tokens):
            x = self.words(tokens) + self.places.weight[: tokens.shape[1]]
            for block in self.blocks:
                x = checkpoint(block, x, use_reentrant=False)
            parts = zip(x[:, :-1].split(8), tokens[:, 1:].split(8))
            return sum(checkpoint(self.part, *part, use_reentrant=False) for part in parts) / tokens.numel()

    with torch.device("cuda"):
        return Model()


def train(torch, ours, steps, between=None, forward=None, sizes=(24, 1024, 16384, 1024), batch=8, tag="train", make=build, is_mixed=True):
    """Trains a new model whose weights and optimiser are in a tag; losses, seconds of each step, and the most bytes that were live."""
    torch.manual_seed(0)
    with ours.tag(tag):
        model = make(torch, *sizes)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    losses, times = [], []
    for step in range(steps):
        tokens = torch.randint(0, sizes[2], (batch, sizes[3]), generator=torch.Generator().manual_seed(step)).cuda()
        torch.cuda.synchronize()
        if step == steps // 2:
            torch.cuda.reset_peak_memory_stats()
        start = time.perf_counter()
        with torch.autocast("cuda", torch.bfloat16, enabled=is_mixed):
            if forward is None:
                loss = model(tokens)
            else:
                with forward():
                    loss = model(tokens)
        loss.backward()
        with ours.tag(tag):
            optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
        losses.append(loss.item())
        del loss, tokens
        if between is not None:
            between(step)
    standing = torch.cuda.memory_allocated()
    peak = torch.cuda.max_memory_allocated()
    return losses, sorted(times[steps // 2 :])[(steps - steps // 2) // 2], peak, standing


def empty(torch, ours):
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()
    ours.empty_cache()


def rates(torch):
    """Bytes a second of copies between the device and pinned memory: down and up."""
    host, device = torch.empty(GIB, dtype=torch.uint8, pin_memory=True), torch.empty(GIB, dtype=torch.uint8, device="cuda")
    found = []
    for to, source in ((host, device), (device, host)):
        best = 1e9
        for _ in range(4):
            torch.cuda.synchronize()
            start = time.perf_counter()
            to.copy_(source, non_blocking=True)
            torch.cuda.synchronize()
            best = min(best, time.perf_counter() - start)
        found.append(GIB / best)
    return found


def prove_training(torch, ours, watcher, small):
    sizes = (4, 512, 4096, 256) if small else (24, 1024, 16384, 1024)
    spare = 128 * MIB if small else GIB
    # Loads every kernel, and makes the streams of copies, which stay.
    train(torch, ours, 2, between=lambda step: (ours.sleep(), ours.wake()), sizes=sizes)
    empty(torch, ours)
    base = watcher.ask("free")
    plain, *_ = train(torch, ours, 6, sizes=sizes)
    empty(torch, ours)
    again, *_ = train(torch, ours, 6, sizes=sizes)
    row("training repeats itself to the bit", str(plain == again), "True", plain == again)
    del again
    empty(torch, ours)
    seen, folder = [], tempfile.mkdtemp()

    def nap(step):
        ours.sleep(to=["host", "host", "disk:" + folder][step % 3])
        torch._C._cuda_clearCublasWorkspaces()
        ours.sleep()
        free = watcher.ask("free")
        taken = watcher.ask("take", free - spare)
        short = raises(torch.OutOfMemoryError, ours.wake, "stays asleep")
        held = ours.residence()["train"]
        dropped = watcher.ask("drop")
        seen.append((base - free, taken, short, held["asleep"] and held["device"] == 0, dropped))
        ours.wake()

    slept, *_ = train(torch, ours, 6, between=nap, sizes=sizes)
    row("losses with sleeps in between equal those without", str(slept == plain), "True", slept == plain)
    most = max(left for left, *_ in seen)
    row("driver's figure asleep, above the context", f"{most} bytes", "0", most <= 0)
    taken = all(code == 0 and dropped == 0 for _, code, _, _, dropped in seen)
    row("a second process takes what sleeps", str(taken), "True", taken)
    short = all(each[2] and each[3] for each in seen)
    row("wake without room: OutOfMemoryError, unchanged", str(short), "True", short)
    empty(torch, ours)


def prove_graph(torch, ours):
    with ours.tag("graphs"):
        weight, static = torch.randn(512, 512, device="cuda"), torch.randn(64, 512, device="cuda")
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            [(static @ weight).relu() @ weight for _ in range(2)]
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            middle = (static @ weight).relu()
            result = middle @ weight
    right = True
    for turn in range(3):
        ours.sleep("graphs")
        ours.wake("graphs")
        batch = torch.randn(64, 512, device="cuda")
        static.copy_(batch)
        graph.replay()
        wanted = (batch @ weight).relu() @ weight
        right = right and float((result - wanted).abs().max()) <= 1e-3 * float(wanted.abs().max())
    row("a graph replays after a wake", str(right), "True", right)
    refused = []
    other = torch.cuda.CUDAGraph()
    with torch.cuda.graph(other):
        refused.append(raises(ours.OmniheapError, lambda: ours.sleep("graphs"), "captured"))
        late = static * 2
    row("sleep during a capture is refused", str(refused[0]), "True", refused[0])
    del late


def prove_misuse(torch, ours):
    with ours.tag("misuse"):
        kept, gone = torch.full((MIB,), 3.0, device="cuda"), torch.ones(MIB, device="cuda")
    side = torch.cuda.Stream()
    address, error = kept.data_ptr(), ours.OmniheapError
    with torch.cuda.stream(side):
        torch.cuda._sleep(200_000_000)
        kept.add_(1.0)
    found = [raises(error, lambda: ours.wake("misuse"), "awake"), raises(error, lambda: ours.sleep("unknown"), "misuse")]
    ours.sleep("misuse")
    found.append(raises(error, lambda: ours.sleep("misuse"), "asleep"))

    def allocate():
        with ours.tag("misuse"):
            torch.empty(MIB, device="cuda")

    found.append(raises(RuntimeError, allocate, 'wake("misuse")'))
    with ours.tag("outer"):
        found.append(raises(error, lambda: ours.tag("inner").__enter__(), "one tag"))
    del gone
    gc.collect()
    ours.wake("misuse")
    row("misuse is an exception that says what to do", str(found.count(True)) + " of 5", "5 of 5", all(found))
    same = kept.data_ptr() == address and bool((kept == 4.0).all())
    row("waits for a stream that nobody named; same address", str(same), "True", same)


def prove_rates(torch, ours, watcher, small):
    down, up = rates(torch)
    empty(torch, ours)
    total, count = (GIB, 64) if small else (8 * GIB, 400)
    with ours.tag("bulk"):
        parts = [(turn % 251, torch.full((total // count,), turn % 251, dtype=torch.uint8, device="cuda")) for turn in range(count)]
    torch.cuda.synchronize()
    for kind in ("no holes", "a fifth of holes"):
        times = []
        for _ in range(4):
            live = sum(part.nbytes for _, part in parts)
            begin = time.perf_counter()
            ours.sleep("bulk")
            middle = time.perf_counter()
            ours.wake("bulk")
            times.append((middle - begin, time.perf_counter() - middle))
        cold, warm = times[0], [sorted(each)[1] for each in zip(*times[1:])]
        ratios = [warm[0] / (live / down), warm[1] / (live / up)]
        for name, seconds, ratio in zip(("sleep", "wake"), warm, ratios):
            row(f"warm {name}, {live / GIB:.2f} GiB, {kind}", f"{seconds * 1e3:.0f} ms = {ratio:.2f}", "<= 1.15 of the pinned copy", ratio <= 1.15)
        row(f"first sleep, {kind}", f"{cold[0] * 1e3:.0f} ms")
        right = all(bool((part == value).all()) for value, part in parts)
        row(f"bytes are right, {kind}", str(right), "True", right)
        parts = [part for turn, part in enumerate(parts) if turn % 5]
        torch.cuda.synchronize()
    row("pinned copies", f"{down / 1e9:.1f} GB/s down, {up / 1e9:.1f} GB/s up")
    del parts
    with ours.tag("cycles"):
        held = torch.full((256 * MIB,), 9, dtype=torch.uint8, device="cuda")
    free = []
    for _ in range(100):
        ours.sleep("cycles")
        free.append(watcher.ask("free"))
        ours.wake("cycles")
    grown = free[0] - free[-1]
    row("100 cycles: driver's figure asleep grew by", f"{grown} bytes", "0", grown <= 0 and bool((held == 9).all()))


def prove_activations(torch, ours, cases):
    """Cases: a builder, its sizes, the batch, whether in bf16 where that is exact enough, the most bytes that leave, the steps, and whether PyTorch's own way runs too."""
    down, up = rates(torch)
    for title, (make, sizes, batch, is_mixed, most, steps, has_rival) in cases.items():
        offload = ours.offload_activations(min_bytes="1MiB", keep_last=2, most=most)
        ways = {"none": None, "offload_activations": lambda: offload}
        if has_rival:
            ways["save_on_cpu"] = lambda: torch.autograd.graph.save_on_cpu(pin_memory=True)
        found = {}
        for name, forward in ways.items():
            found[name] = train(torch, ours, steps, forward=forward, sizes=sizes, batch=batch, make=make, is_mixed=is_mixed)
            empty(torch, ours)
        losses, seconds, peak, standing = found["none"]
        for name in ways:
            its, took, most_live, stands = found[name]
            above = (most_live - stands) / (peak - standing)
            row(f"{title}, {name}: step, peak, peak above weights", f"{took * 1e3:.0f} ms ({took / seconds:.3f})  {most_live / GIB:.2f} GiB ({most_live / peak:.2f})  {above:.2f}")
        moved = offload.figures()["offloaded_bytes"] / steps
        link = moved / down + moved / up
        row(f"{title}: bytes that leave and return in a step", f"{moved / GIB:.2f} GiB, {link / seconds:.2f} of the step at the link's rate")
        same = found["offload_activations"][0] == losses
        row(f"{title}: losses", "equal" if same else "differ", "equal", same)
        if has_rival:
            ratio = found["offload_activations"][1] / found["save_on_cpu"][1]
            row(f"{title}: time of save_on_cpu's", f"{ratio:.2f}", "<= 0.6", ratio <= 0.6)


def activation_cases(small):
    if small:
        tiny = (4, 512, 4096, 256)
        return {"fp32": (build, tiny, 4, False, "32MiB", 4, True), "checkpointed experts": (build_experts, tiny, 16, True, None, 4, True)}
    return {
        # A quarter of GPT-2 XL's layers, in PyTorch's usual precision.
        "GPT-2 XL, 12 layers, fp32": (build, (12, 1600, 50257, 1024), 16, False, "16GiB", 5, True),
        "checkpointed experts, bf16": (build_experts, (16, 1024, 16384, 1024), 128, True, None, 5, True),
        "GPT-2 medium, bf16, what the link takes": (build, (24, 1024, 16384, 1024), 16, True, "3GiB", 6, False),
        "GPT-2 medium, bf16, all": (build, (24, 1024, 16384, 1024), 8, True, None, 6, True),
    }


def prove_layers(torch, ours, small):
    """A model with part of its layers on the device, against the time that the copies of the others take."""
    depth, width = (8, 1024) if small else (16, 4096)
    _, up = rates(torch)
    with torch.no_grad():
        torch.manual_seed(0)
        model = build(torch, depth, width, 4096, 256).to(torch.bfloat16)
        tokens = torch.randint(0, 4096, (1, 64), device="cuda")
        wanted = model(tokens)
        total = sum(each.nbytes for each in model.blocks.parameters())
        torch.cuda.synchronize()
        begin = time.perf_counter()
        streamed = ours.stream_layers(model, resident=total // 2)
        empty(torch, ours)
        row(f"stream_layers of {total / GIB:.2f} GiB", f"{time.perf_counter() - begin:.1f} s to begin with")
        same, times = True, []
        for _ in range(5):
            before = streamed.figures()["copied_bytes"]
            begin = time.perf_counter()
            same = same and torch.equal(model(tokens), wanted)
            times.append(time.perf_counter() - begin)
            copied = streamed.figures()["copied_bytes"] - before
        row("a streamed model's results", "equal" if same else "differ", "equal", same)
        ratio = copied / up / sorted(times)[2]
        figures = streamed.figures()
        row("rate of a streamed model, of the link's", f"{ratio:.2f} ({copied / GIB:.2f} GiB a pass, {figures['resident_bytes'] / total:.2f} resident)", ">= 0.95", ratio >= 0.95)


def llama(torch, depth, width, inner, vocabulary):
    """A model of the shape of Llama for one token, without a cache of earlier ones; its weights are noise."""
    nn, F = torch.nn, torch.nn.functional
    linear = lambda wide, narrow: nn.Linear(wide, narrow, bias=False)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
            self.query, self.key, self.value, self.project = (linear(width, width) for _ in range(4))
            self.gate, self.up, self.down = linear(width, inner), linear(width, inner), linear(inner, width)

        def forward(self, x):
            heads = [part(self.norm1(x)).view(1, -1, width // 128, 128).transpose(1, 2) for part in (self.query, self.key, self.value)]
            x = x + self.project(F.scaled_dot_product_attention(*heads).transpose(1, 2).reshape(x.shape))
            y = self.norm2(x)
            return x + self.down(F.silu(self.gate(y)) * self.up(y))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.norm, self.head = nn.Embedding(vocabulary, width), nn.RMSNorm(width), linear(width, vocabulary)
            self.blocks = nn.ModuleList(Block() for _ in range(depth))

        def forward(self, tokens):
            x = self.words(tokens)
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    with torch.device("meta"):
        model = Model().to(torch.bfloat16)
    model = model.to_empty(device="cuda")
    for name, weight in model.named_parameters():
        weight.data.fill_(1.0) if "norm" in name else weight.data.uniform_(-0.02, 0.02)
    return model


def seconds_of(torch, call, times):
    """The median of the seconds of a call, and its last result."""
    found = []
    for _ in range(times):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        result = call()
        torch.cuda.synchronize()
        found.append(time.perf_counter() - begin)
    return sorted(found)[times // 2], result


def prove_large(torch, ours, small):
    """40 GiB of weights where 24 may be on the device: tokens a second of a batch of one."""
    depth, width, inner, limit = (10, 1024, 2816, 96 * MIB) if small else (40, 6144, 20480, 24 * GIB)
    _, up = rates(torch)
    empty(torch, ours)
    with torch.no_grad():
        torch.manual_seed(0)
        model = llama(torch, depth, width, inner, 32000)
        tokens = torch.randint(0, 32000, (1, 1), device="cuda")
        total = sum(each.nbytes for each in model.parameters())
        seconds_of(torch, lambda: model(tokens), 3)
        plain, wanted = seconds_of(torch, lambda: model(tokens), 21)
        all_of_it = ours.stream_layers(model, resident=total)
        resident, same = seconds_of(torch, lambda: model(tokens), 21)
        all_of_it.remove()
        row(f"{total / GIB:.1f} GiB, all resident: a token", f"{resident * 1e3:.1f} ms = {resident / plain:.3f} of no pool", "<= 1.02", resident <= 1.02 * plain and torch.equal(same, wanted))
        begin = time.perf_counter()
        streamed = ours.stream_layers(model, resident=limit)
        empty(torch, ours)
        row(f"{total / GIB:.1f} GiB in {limit / GIB:.1f}: begin", f"{time.perf_counter() - begin:.1f} s")
        model(tokens)
        before = streamed.figures()["copied_bytes"]
        took, result = seconds_of(torch, lambda: model(tokens), 5)
        copied = (streamed.figures()["copied_bytes"] - before) / 5
        row("its result", "equal" if torch.equal(result, wanted) else "differs", "equal", torch.equal(result, wanted))
        ratio = copied / up / took
        row("its tokens a second, of the link's", f"{1 / took:.2f} = {ratio:.2f} ({copied / GIB:.2f} GiB do not stay, {(total - limit) / GIB:.2f} are beyond the limit)", ">= 0.95", ratio >= 0.95)
        streamed.remove()
        prove_offload(torch, model, tokens, took, wanted)


def prove_offload(torch, model, tokens, ours_took, wanted):
    """The same model by accelerate's `cpu_offload`."""
    try:
        import accelerate
    except ImportError:
        return row("accelerate", "is not installed")
    begin = time.perf_counter()
    accelerate.cpu_offload(model.cpu(), execution_device=torch.device("cuda", 0))
    ready = time.perf_counter() - begin
    took, result = seconds_of(torch, lambda: model(tokens), 3)
    same = torch.equal(result.cuda(), wanted)
    row("accelerate's cpu_offload", f"{1 / took:.2f} tokens a second, {ready:.1f} s to begin with, {'equal' if same else 'differs'}")
    row("tokens a second, of accelerate's", f"{took / ours_took:.2f}", ">= 2", took >= 2 * ours_took)


def prove_host_mapped(torch, ours, watcher, small):
    """A tag wakes up while another process has the device's memory: part of it is host memory at the same addresses."""
    size, part = (256 * MIB, 64 * MIB) if small else (8 * GIB, 2 * GIB)
    down, up = rates(torch)
    empty(torch, ours)
    with ours.tag("mapped"):
        held = torch.arange(size // 8, dtype=torch.int64, device="cuda")
    wanted, address = int(held.sum()), held.data_ptr()
    beside = torch.empty(part // 8, dtype=torch.int64, device="cuda")
    seconds_of(torch, lambda: held[: part // 8].sum(), 2)
    ours.sleep("mapped")
    spare = watcher.ask("free") - size // 2
    taken = watcher.ask("take", spare)
    short = raises(torch.OutOfMemoryError, lambda: ours.wake("mapped"), "stays asleep")
    begin = time.perf_counter()
    ours.wake("mapped", host_mapped=size)
    took = time.perf_counter() - begin
    now = ours.residence()["mapped"]
    row("wake beside another process", f"{now['device'] / GIB:.2f} GiB of the device, {now['host_mapped'] / GIB:.2f} GiB of the host, {took:.2f} s", "both", taken == 0 and short and now["device"] > 0 and now["host_mapped"] > 0)
    same = int(held.sum()) == wanted and held.data_ptr() == address
    row("its bytes and address", str(same), "True", same)
    # The end of the tag is what the device had no room for.
    mapped = held[-(part // 8) :]
    for name, call, rate in (
        ("a kernel reads", lambda: mapped.sum(), up),
        ("a copy reads", lambda: beside.copy_(mapped), up),
        ("a kernel writes", lambda: mapped.fill_(3), down),
        ("a copy writes", lambda: mapped.copy_(beside), down),
    ):
        ratio = part / seconds_of(torch, call, 5)[0] / rate
        row(f"{name} host-mapped memory", f"{ratio * rate / 1e9:.1f} GB/s = {ratio:.2f} of pinned copies", ">= 0.9", ratio >= 0.9)
    dropped = watcher.ask("drop")
    ours.sleep("mapped")
    ours.wake("mapped", host_mapped=size)
    now = ours.residence()["mapped"]
    home = dropped == 0 and now["host_mapped"] == 0 and int(held.sum()) == wanted
    row("a sleep and a wake with room bring it home", str(home), "True", home)


def disk_rates(file, size):
    """Bytes a second that the disk takes and gives past the page cache, in pieces of 8 MiB."""
    piece = mmap.mmap(-1, 8 * MIB)
    piece.write(b"7" * len(piece))
    found = []
    for call in (os.pwritev, os.preadv):
        start = time.perf_counter()
        moved = sum(call(file, [piece], at) for at in range(0, size, len(piece)))
        found.append(moved / (time.perf_counter() - start))
    return found


def prove_disk(torch, ours, small):
    """Sleep to a file and wake, beside the disk itself."""
    size = (1 if small else 2) * GIB
    with tempfile.TemporaryDirectory() as folder:
        for count in (1, size // (64 * MIB)):
            with ours.tag("disk"):
                kept = [torch.full((size // count,), number % 251, dtype=torch.uint8, device="cuda") for number in range(count)]
            rounds, files = [], []
            for _ in range(3):
                files.append(os.open(folder, os.O_TMPFILE | os.O_DIRECT | os.O_RDWR, 0o600))  # Open to the end: a file that goes keeps the disk busy.
                takes, gives = disk_rates(files[-1], size)
                torch.cuda.synchronize()
                start = time.perf_counter()
                ours.sleep("disk", to="disk:" + folder)
                middle = time.perf_counter()
                ours.wake("disk")
                end = time.perf_counter()
                rounds.append((takes, size / (middle - start), gives, size / (end - middle)))
                time.sleep(1)  # The bytes leave the disk after the wake.
            equal = all(bool((tensor == number % 251).all()) for number, tensor in enumerate(kept))
            row(f"bytes of {count} tensors", str(equal), "True", equal)
            takes, slept, gives, woke = (statistics.median(each) for each in zip(*rounds))
            row(f"sleep of {count} tensors to a file", f"{slept / 1e9:.2f} GB/s = {slept / takes:.2f} of the disk", ">= 0.9", slept >= 0.9 * takes)
            row(f"wake of {count} tensors from a file", f"{woke / 1e9:.2f} GB/s = {woke / gives:.2f} of the disk", ">= 0.95", woke >= 0.95 * gives)
            del kept
            [os.close(file) for file in files]
            empty(torch, ours)


def main():
    start = time.perf_counter()
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    import omniheap.torch as ours
    import torch

    small = "--small" in sys.argv
    ours.enable()
    torch.use_deterministic_algorithms(True)
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.utils.deterministic.fill_uninitialized_memory = False
    watcher = Watcher()
    parts = {
        "training": lambda: prove_training(torch, ours, watcher, small),
        "misuse": lambda: prove_misuse(torch, ours),
        "rates": lambda: prove_rates(torch, ours, watcher, small),
        "activations": lambda: prove_activations(torch, ours, activation_cases(small)),
        "layers": lambda: prove_layers(torch, ours, small),
        "graph": lambda: prove_graph(torch, ours),
        "host_mapped": lambda: prove_host_mapped(torch, ours, watcher, small),
        "disk": lambda: prove_disk(torch, ours, small),
        "large": lambda: prove_large(torch, ours, small),
    }
    chosen = [name for name in sys.argv[1:] if name in parts] or list(parts)
    for name, part in ((name, parts[name]) for name in chosen):
        begin = time.perf_counter()
        try:
            part()
        except Exception as error:
            import traceback

            traceback.print_exc()
            row(f"part {name}", f"{type(error).__name__}: {error}"[:300], "no exception", False)
        print(f"# {name}: {time.perf_counter() - begin:.1f} s", flush=True)
        gc.collect()
    watcher.end()
    width = max(len(name) for name, *_ in ROWS)
    print("\n" + "\n".join(f"{name:<{width}}  {figure:<48}  {wanted:<28}  {verdict}".rstrip() for name, figure, wanted, verdict in ROWS))
    print(f"{len(FAILED)} failed; {time.perf_counter() - start:.0f} s")
    return bool(FAILED)


if __name__ == "__main__":
    sys.exit(watch() if "--watch" in sys.argv else main())
