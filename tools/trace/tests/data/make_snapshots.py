"""Writes small snapshots in the structure of torch.cuda.memory._snapshot(), with Python's own pickle.

usage: make_snapshots.py FOLDER [EVENTS]   (EVENTS: also write big.pickle with that many)
"""
import pickle
import random
import sys

EMPTY = []
SEGMENT = 0x7F0000000000


def frame(name, line):
    return {"filename": "/home/user/model.py", "line": line, "name": name}


def stack(*names):
    return [frame(name, 10 * (at + 1)) for at, name in enumerate(names)]


def event(action, addr, size, time, frames=EMPTY, stream=0):
    return {"action": action, "addr": addr, "size": size, "stream": stream, "time_us": time,
            "compile_context": "N/A", "user_metadata": "", "frames": frames}


def block(addr, size, asked, state, frames=EMPTY):
    return {"address": addr, "size": size, "requested_size": asked, "state": state, "frames": frames}


def segment(addr, size, blocks, **more):
    live = sum(b["size"] for b in blocks if b["state"] != "inactive")
    return {"device": 0, "address": addr, "total_size": size, "allocated_size": live, "active_size": live,
            "requested_size": live, "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0),
            "is_expandable": False, "frames": EMPTY, "blocks": blocks, **more}


def small():
    """One segment from before the history, one mapped in it; a failed request; a free of an old allocation."""
    forward, backward = stack("linear", "forward", "main"), stack("linear", "backward", "main")
    first, second = SEGMENT, SEGMENT + (64 << 20)
    t = 1_700_000_000_000_000
    trace = [
        event("segment_alloc", second, 20 << 20, t, forward),
        event("alloc", second, 5_000_000, t + 1, forward),
        event("free_requested", first, 4096, t + 2, EMPTY),
        event("free_completed", first, 4096, t + 3, EMPTY),
        event("alloc", first, 1000, t + 5, backward, stream=94_000_000_000_000),
        {"action": "oom", "device_free": 12345, "size": 1 << 40, "stream": 0, "time_us": t + 6, "frames": backward},
        event("snapshot", 0, 0, t + 7),
    ]
    segments = [
        segment(first, 2 << 20, [block(first, 1024, 1000, "active_allocated", backward),
                                 block(first + 1024, 7168, 0, "inactive"),
                                 block(first + 8192, 512, 512, "active_allocated", forward),
                                 block(first + 8704, (2 << 20) - 8704, 0, "inactive")]),
        segment(second, 20 << 20, [block(second, 5_000_192, 5_000_000, "active_allocated", forward),
                                   block(second + 5_000_192, (20 << 20) - 5_000_192, 0, "inactive")]),
    ]
    return {"segments": segments, "device_traces": [trace, []],
            "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "garbage": 0.8, "on": True}}


def expandable():
    """Pieces of one expandable segment, mapped one by one and partly given back."""
    t = 5
    trace = [
        event("segment_map", SEGMENT, 4 << 20, t),
        event("segment_map", SEGMENT + (4 << 20), 4 << 20, t),
        event("alloc", SEGMENT, 3 << 20, t + 1),
        event("alloc", SEGMENT + (3 << 20), 2 << 20, t + 1),
        event("free_requested", SEGMENT + (3 << 20), 2 << 20, t + 2),
        event("free_completed", SEGMENT + (3 << 20), 2 << 20, t + 2),
        event("segment_unmap", SEGMENT + (4 << 20), 4 << 20, t + 3),
    ]
    segments = [segment(SEGMENT, 4 << 20, [block(SEGMENT, 3 << 20, 3 << 20, "active_allocated"),
                                           block(SEGMENT + (3 << 20), 1 << 20, 0, "inactive")], is_expandable=True)]
    return {"segments": segments, "device_traces": [trace]}


def holes():
    """A history that was off for a while: a second allocation at one address, and frees of nobody."""
    trace = [
        event("segment_alloc", SEGMENT, 2 << 20, 10),
        event("alloc", SEGMENT, 1024, 11),
        event("alloc", SEGMENT, 2048, 12),
        event("free_requested", SEGMENT + 4096, 512, 13),
        event("free_requested", SEGMENT, 2048, 14),
        event("free_completed", SEGMENT, 2048, 15),
        event("free_completed", SEGMENT, 2048, 16),
    ]
    return {"segments": [segment(SEGMENT, 2 << 20, [block(SEGMENT, 2 << 20, 0, "inactive")])], "device_traces": [trace]}


def big(count):
    random.seed(1)
    stacks = [stack(*(random.choice("abcdefgh") + str(n) for n in range(20))) for _ in range(500)]
    trace, live, address = [event("segment_alloc", SEGMENT, 1 << 40, 1_700_000_000_000_000)], [], SEGMENT
    for n in range(count // 3):
        size = random.choice([512, 4096, 1 << 20, 3 << 20])
        trace.append(event("alloc", address, size, 1_700_000_000_000_000 + n, random.choice(stacks)))
        live.append((address, size))
        address += size
        if len(live) > 300:
            addr, size = live.pop(random.randrange(len(live)))
            trace.append(event("free_requested", addr, size, 1_700_000_000_000_000 + n, random.choice(stacks)))
            trace.append(event("free_completed", addr, size, 1_700_000_000_000_000 + n, random.choice(stacks)))
    blocks, at = [], SEGMENT
    for addr, size in sorted(live) + [(SEGMENT + (1 << 40), 0)]:
        if addr > at:
            blocks.append(block(at, addr - at, 0, "inactive"))
        if size:
            blocks.append(block(addr, size, size, "active_allocated"))
        at = addr + size
    return {"segments": [segment(SEGMENT, 1 << 40, blocks)], "device_traces": [trace]}


if __name__ == "__main__":
    folder = sys.argv[1]
    for protocol in (2, 3, 4, 5):
        with open(f"{folder}/snapshot-{protocol}.pickle", "wb") as file:
            pickle.dump(small(), file, protocol)
    with open(f"{folder}/expandable.pickle", "wb") as file:
        pickle.dump(expandable(), file)
    with open(f"{folder}/holes.pickle", "wb") as file:
        pickle.dump(holes(), file)
    if len(sys.argv) > 2:
        with open(f"{folder}/big.pickle", "wb") as file:
            pickle.dump(big(int(sys.argv[2])), file)
