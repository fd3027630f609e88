//! Many random copies and fills on several streams, compared with a model in host memory.

#![expect(unsafe_code, reason = "calls the HIP library under test")]

use core::ffi::c_void;
use core::ptr;

use omniheap_hip::sys::{
    Core, hipError_t, hipEvent_t, hipEventDisableTiming, hipMemcpyKind, hipStream_t,
    hipStreamNonBlocking,
};

use super::copies::pattern;
use crate::run::{Run, quiet};

const STREAMS: usize = 4;
const BUFFERS: usize = 16;
const SIZE: usize = 1 << 14;
const STEPS: usize = 20_000;

/// A buffer on the device, its stream, and the bytes it should hold once that stream is done.
struct Buffer {
    memory: *mut c_void,
    stream: hipStream_t,
    done: hipEvent_t,
    model: Vec<u8>,
}

/// A small generator of numbers; the same ones in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).unwrap_or_default()
    }
}

pub(crate) fn random_operations(run: &mut Run) {
    let core = run.api.core;
    let mut streams = [hipStream_t::NULL; STREAMS];
    for stream in &mut streams {
        quiet!(core, hipStreamCreateWithFlags(&raw mut *stream, hipStreamNonBlocking));
    }
    let mut buffers: Vec<_> =
        (0..BUFFERS).map(|index| buffer(&core, streams[index % STREAMS])).collect();
    quiet!(run.api.device, hipDeviceSynchronize());
    // Pinned, so that uploads from it are asynchronous too; it is never written again.
    let mut source: *mut c_void = ptr::null_mut();
    quiet!(core, hipHostMalloc(&raw mut source, SIZE, 0x4000_0000));
    let bytes = pattern(SIZE);
    // SAFETY: the call above gave `SIZE` bytes that the host may touch.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), source.cast(), SIZE) };
    let (mut random, mut refused) = (Random(0x9E37_79B9), 0);
    for _ in 0..STEPS {
        let code = step(&core, &mut buffers, (source, &bytes), &mut random);
        refused += usize::from(code != hipError_t::hipSuccess);
    }
    run.check("no call is refused", refused == 0);
    let wrong = buffers.iter().filter(|buffer| !holds(&core, buffer)).count();
    run.check("every buffer holds what the model says", wrong == 0);
    for buffer in buffers {
        quiet!(core, hipEventDestroy(buffer.done));
        quiet!(core, hipFree(buffer.memory));
    }
    for stream in streams {
        quiet!(core, hipStreamDestroy(stream));
    }
    quiet!(core, hipHostFree(source));
}

fn buffer(core: &Core, stream: hipStream_t) -> Buffer {
    let mut memory = ptr::null_mut();
    let mut done = hipEvent_t::NULL;
    quiet!(core, hipMalloc(&raw mut memory, SIZE));
    quiet!(core, hipMemset(memory, 0, SIZE));
    quiet!(core, hipEventCreateWithFlags(&raw mut done, hipEventDisableTiming));
    Buffer { memory, stream, done, model: vec![0; SIZE] }
}

/// Does one thing to a random part of a random buffer.
fn step(
    core: &Core,
    buffers: &mut [Buffer],
    source: (*mut c_void, &[u8]),
    random: &mut Random,
) -> hipError_t {
    let (to, from) = (random.below(BUFFERS), random.below(BUFFERS));
    let size = 1 + random.below(SIZE / 2);
    let (at, start) = (random.below(SIZE - size + 1), random.below(SIZE - size + 1));
    let (memory, stream) = (buffers[to].memory.wrapping_byte_add(at), buffers[to].stream);
    match random.below(3) {
        0 => {
            let value = u8::try_from(random.below(256)).unwrap_or_default();
            buffers[to].model[at..at + size].fill(value);
            quiet!(core, hipMemsetAsync(memory, value.into(), size, stream))
        }
        1 => {
            buffers[to].model[at..at + size].copy_from_slice(&source.1[start..start + size]);
            let kind = hipMemcpyKind::hipMemcpyHostToDevice;
            quiet!(
                core,
                hipMemcpyAsync(memory, source.0.wrapping_byte_add(start), size, kind, stream)
            )
        }
        _ if to == from => hipError_t::hipSuccess,
        _ => copy(core, buffers, (to, at), (from, start), size),
    }
}

/// Copies between buffers: the stream of one waits for the other's, and the other way round before it is written again.
fn copy(
    core: &Core,
    all: &mut [Buffer],
    to: (usize, usize),
    from: (usize, usize),
    size: usize,
) -> hipError_t {
    let bytes = all[from.0].model[from.1..from.1 + size].to_vec();
    all[to.0].model[to.1..to.1 + size].copy_from_slice(&bytes);
    let (target, origin) = (&all[to.0], &all[from.0]);
    let memory = |buffer: &Buffer, at| buffer.memory.wrapping_byte_add(at);
    quiet!(core, hipEventRecord(origin.done, origin.stream));
    quiet!(core, hipStreamWaitEvent(target.stream, origin.done, 0));
    let kind = hipMemcpyKind::hipMemcpyDeviceToDevice;
    let (into, out) = (memory(target, to.1), memory(origin, from.1));
    let code = quiet!(core, hipMemcpyAsync(into, out, size, kind, target.stream));
    quiet!(core, hipEventRecord(target.done, target.stream));
    quiet!(core, hipStreamWaitEvent(origin.stream, target.done, 0));
    code
}

fn holds(core: &Core, buffer: &Buffer) -> bool {
    let mut got = vec![0_u8; SIZE];
    quiet!(core, hipStreamSynchronize(buffer.stream));
    quiet!(
        core,
        hipMemcpy(
            got.as_mut_ptr().cast(),
            buffer.memory,
            SIZE,
            hipMemcpyKind::hipMemcpyDeviceToHost
        )
    );
    got == buffer.model
}
