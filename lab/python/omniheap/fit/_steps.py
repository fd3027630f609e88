"""Calls a step while it is recorded."""

import gc


def call(step, times, begin, live_bytes):
    """Calls a step, if it is a function; returns the bytes by which the last call left more behind than the one before.

    begin: is told the number of a call before it. live_bytes: returns what lives.
    """
    left = []
    for number in range(times if callable(step) else 0):
        begin(number)
        step()
        # Cycles that died in the step, in young generations only: a full collection is slow.
        gc.collect(min(number, 2))
        left.append(live_bytes())
    return max(0, left[-1] - left[-2]) if len(left) > 1 else 0
