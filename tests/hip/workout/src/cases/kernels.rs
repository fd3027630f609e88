//! Kernels: compiled at run time, loaded, launched.

#![expect(unsafe_code, reason = "calls the HIP library under test")]

use core::ffi::{CStr, c_char, c_void};
use core::ptr;

use omniheap_hip::sys::{
    Kernels, Rtc, hipError_t, hipFuncAttribute, hipFunction_attribute, hipFunction_t,
    hipMemcpyKind, hipModule_t, hipStream_t, hipStreamNonBlocking, hiprtcProgram, hiprtcResult,
};

use super::devices::architecture;
use crate::run::{Run, call, quiet};

pub(super) const SOURCE: &CStr = c_text(concat!(include_str!("../kernels.hip"), "\0"));
/// The kernels that the backend itself launches, and those that hold its timelines in tests.
const OWN: [&CStr; 3] = [
    c_text(concat!(include_str!("../../../../../backends/stream/kernels/compact.cu"), "\0")),
    c_text(concat!(include_str!("../../../../../backends/cuda/kernels/constant_bank.cu"), "\0")),
    c_text(concat!(include_str!("../../../../conformance/kernels/delay.cu"), "\0")),
];
const TO_DEVICE: hipMemcpyKind = hipMemcpyKind::hipMemcpyHostToDevice;
const TO_HOST: hipMemcpyKind = hipMemcpyKind::hipMemcpyDeviceToHost;

const fn c_text(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("the source holds no zero byte"),
    }
}

/// Compiles kernels for `architecture`, or answers the compiler's log.
fn build(rtc: &Rtc, source: &CStr, architecture: &str) -> Result<Vec<u8>, String> {
    let mut program = hiprtcProgram::NULL;
    let (none, name) = (ptr::null_mut(), c"kernels.hip".as_ptr());
    quiet!(rtc, hiprtcCreateProgram(&raw mut program, source.as_ptr(), name, 0, none, none));
    let option = format!("--offload-arch={architecture}\0");
    let mut options: [*const c_char; 1] = [option.as_ptr().cast()];
    let result = quiet!(rtc, hiprtcCompileProgram(program, 1, options.as_mut_ptr()));
    let (mut size, mut length) = (0, 0);
    quiet!(rtc, hiprtcGetProgramLogSize(program, &raw mut length));
    let mut log = vec![0_u8; length];
    quiet!(rtc, hiprtcGetProgramLog(program, log.as_mut_ptr().cast()));
    if result != hiprtcResult::HIPRTC_SUCCESS {
        return Err(format!("{}: {}", result.0, String::from_utf8_lossy(&log)));
    }
    quiet!(rtc, hiprtcGetCodeSize(program, &raw mut size));
    let mut code = vec![0_u8; size];
    quiet!(rtc, hiprtcGetCode(program, code.as_mut_ptr().cast()));
    quiet!(rtc, hiprtcDestroyProgram(&raw mut program));
    Ok(code)
}

/// Compiles for architectures that need not be here.
pub(crate) fn compile(run: &mut Run) {
    let Some(rtc) = run.group("compiler", run.api.rtc) else { return };
    for architecture in ["gfx906", "gfx90a", "gfx942", "gfx1030", "gfx1100"] {
        let is_built = |source: &CStr| {
            let built = build(&rtc, source, architecture).inspect_err(|log| eprintln!("{log}"));
            built.is_ok_and(|code| code.starts_with(b"\x7fELF"))
        };
        run.check(architecture, is_built(SOURCE) && OWN.into_iter().all(is_built));
    }
}

pub(crate) fn load_and_launch(run: &mut Run) {
    let Some(rtc) = run.group("compiler", run.api.rtc) else { return };
    let Some(kernels) = run.group("kernels", run.api.kernels) else { return };
    let code = match build(&rtc, SOURCE, &architecture(run)) {
        Ok(code) => code,
        Err(log) => {
            eprintln!("{log}");
            return run.check("the kernels compile", false);
        }
    };
    let (mut module, mut fill) = (hipModule_t::NULL, hipFunction_t::NULL);
    call!(run, kernels, hipModuleLoadData(&raw mut module, code.as_ptr().cast()));
    call!(run, kernels, hipModuleGetFunction(&raw mut fill, module, c"nope".as_ptr()));
    call!(run, kernels, hipModuleGetFunction(&raw mut fill, module, c"fill".as_ptr()));
    let mut stream = hipStream_t::NULL;
    call!(run, run.api.core, hipStreamCreateWithFlags(&raw mut stream, hipStreamNonBlocking));
    let on = On { kernels, module, stream };
    filled(run, &on, fill);
    limits(run, &on, fill);
    constant(run, &on);
    compacted(run, &on);
    held(run, &on);
    call!(run, run.api.core, hipStreamDestroy(stream));
    call!(run, kernels, hipModuleUnload(module));
}

/// A loaded module and a stream to launch on.
struct On {
    kernels: Kernels,
    module: hipModule_t,
    stream: hipStream_t,
}

impl On {
    fn function(&self, name: &CStr) -> hipFunction_t {
        let mut function = hipFunction_t::NULL;
        quiet!(self.kernels, hipModuleGetFunction(&raw mut function, self.module, name.as_ptr()));
        function
    }

    fn launch(
        &self,
        function: hipFunction_t,
        groups: u32,
        shared: u32,
        arguments: &mut [*mut c_void],
    ) -> hipError_t {
        let (list, none) = (arguments.as_mut_ptr(), ptr::null_mut());
        quiet!(
            self.kernels,
            hipModuleLaunchKernel(
                function,
                groups,
                1,
                1,
                256,
                1,
                1,
                shared,
                self.stream,
                list,
                none
            )
        )
    }
}

fn filled(run: &mut Run, on: &On, fill: hipFunction_t) {
    let core = run.api.core;
    let mut memory: *mut c_void = ptr::null_mut();
    call!(run, core, hipMalloc(&raw mut memory, 4096));
    call!(run, core, hipMemset(memory, 0, 4096));
    // The fill may still be under way, and the stream below does not wait for it.
    call!(run, run.api.device, hipDeviceSynchronize());
    let (mut value, mut count) = (7_u32, 1000_u64);
    let mut arguments =
        [(&raw mut memory).cast(), (&raw mut value).cast(), (&raw mut count).cast()];
    let code = on.launch(fill, 4, 1024, &mut arguments);
    run.answer("launch of fill", code);
    call!(run, core, hipStreamSynchronize(on.stream));
    let mut got = vec![1_u32; 1024];
    call!(run, core, hipMemcpy(got.as_mut_ptr().cast(), memory, 4096, TO_HOST));
    run.check("a kernel writes what it should", got[..1000] == [7; 1000] && got[1000..] == [0; 24]);
    call!(run, core, hipFree(memory));
}

fn limits(run: &mut Run, on: &On, fill: hipFunction_t) {
    let mut memory: *mut c_void = ptr::null_mut();
    let (mut value, mut count) = (0_u32, 0_u64);
    let mut arguments =
        [(&raw mut memory).cast(), (&raw mut value).cast(), (&raw mut count).cast()];
    for shared in [48 << 10, 64 << 10, (64 << 10) + 1] {
        let code = on.launch(fill, 1, shared, &mut arguments);
        run.answer(&format!("launch with {shared} shared bytes"), code);
        quiet!(run.api.core, hipStreamSynchronize(on.stream));
    }
    let key = hipFuncAttribute::hipFuncAttributeMaxDynamicSharedMemorySize;
    call!(run, on.kernels, hipFuncSetAttribute(fill.0, key, 64 << 10));
    call!(run, on.kernels, hipFuncSetAttribute(fill.0, key, 1 << 20));
    quiet!(run.api.core, hipGetLastError());
    let mut most = -1;
    let key = hipFunction_attribute::HIP_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    call!(run, on.kernels, hipFuncGetAttribute(&raw mut most, key, fill));
    run.check("the limit is as set", most == 64 << 10);
}

/// A table in constant memory, written by the host and read by a kernel.
fn constant(run: &mut Run, on: &On) {
    let core = run.api.core;
    let (mut table, mut size): (*mut c_void, _) = (ptr::null_mut(), 0);
    call!(
        run,
        on.kernels,
        hipModuleGetGlobal(&raw mut table, &raw mut size, on.module, c"table".as_ptr())
    );
    run.check("the table has its size", size == 65_536);
    let sent: Vec<u32> = (0..16_384).map(|index| index ^ 0xABCD).collect();
    call!(run, core, hipMemcpy(table, sent.as_ptr().cast(), 65_536, TO_DEVICE));
    let mut memory: *mut c_void = ptr::null_mut();
    call!(run, core, hipMalloc(&raw mut memory, 65_536));
    let mut count = 16_384_u64;
    let mut arguments = [(&raw mut memory).cast(), (&raw mut count).cast()];
    let code = on.launch(on.function(c"lookup"), 64, 0, &mut arguments);
    run.answer("launch of lookup", code);
    call!(run, core, hipStreamSynchronize(on.stream));
    let mut got = vec![0_u32; 16_384];
    call!(run, core, hipMemcpy(got.as_mut_ptr().cast(), memory, 65_536, TO_HOST));
    run.check("a kernel reads constant memory", got == sent);
    call!(run, core, hipFree(memory));
}

/// Moves within one block, all in one launch.
fn compacted(run: &mut Run, on: &On) {
    let core = run.api.core;
    let (mut block, mut list): (*mut c_void, *mut c_void) = (ptr::null_mut(), ptr::null_mut());
    call!(run, core, hipMalloc(&raw mut block, 1 << 20));
    call!(run, core, hipMalloc(&raw mut list, 4096));
    let sent = super::copies::pattern(1 << 19);
    let half = block.wrapping_byte_add(1 << 19);
    call!(run, core, hipMemcpy(half, sent.as_ptr().cast(), 1 << 19, TO_DEVICE));
    let at = |start: *mut c_void, offset: usize| start.wrapping_byte_add(offset).addr() as u64;
    // Every second piece of 4096 bytes, moved to the front without gaps.
    let moves: Vec<[u64; 3]> =
        (0..64).map(|i| [at(block, i * 4096), at(half, i * 8192), 4096]).collect();
    call!(run, core, hipMemcpy(list, moves.as_ptr().cast(), 64 * 24, TO_DEVICE));
    let mut count = 64_u64;
    let code = on.launch(
        on.function(c"compact"),
        16,
        0,
        &mut [(&raw mut list).cast(), (&raw mut count).cast()],
    );
    run.answer("launch of compact", code);
    call!(run, core, hipStreamSynchronize(on.stream));
    let mut got = vec![0_u8; 1 << 18];
    call!(run, core, hipMemcpy(got.as_mut_ptr().cast(), block, 1 << 18, TO_HOST));
    let right = |i: usize| got[i * 4096..][..4096] == sent[i * 8192..][..4096];
    run.check("moves arrive", (0..64).all(right));
    call!(run, core, hipFree(block));
    call!(run, core, hipFree(list));
}

/// A kernel that runs until the host says so: work behind it waits, and the host does not.
fn held(run: &mut Run, on: &On) {
    let core = run.api.core;
    let mut word: *mut c_void = ptr::null_mut();
    call!(run, core, hipHostMalloc(&raw mut word, 4096, 0x4000_0002));
    let word = word.cast::<u32>();
    // SAFETY: the call above gave this memory, which the host may touch.
    unsafe { word.write_volatile(0) };
    let mut seen = ptr::null_mut();
    call!(run, core, hipHostGetDevicePointer(&raw mut seen, word.cast(), 0));
    let code = on.launch(on.function(c"hold"), 1, 0, &mut [(&raw mut seen).cast()]);
    run.answer("launch of hold", code);
    let code = call!(run, core, hipStreamQuery(on.stream));
    run.check("the stream is behind", code == hipError_t::hipErrorNotReady);
    // SAFETY: as above; the kernel only reads it.
    unsafe { word.write_volatile(1) };
    call!(run, core, hipStreamSynchronize(on.stream));
    call!(run, core, hipStreamQuery(on.stream));
    let mut duration = 3_000_000_u64;
    // Before the launch: it may be over by the time that this thread goes on.
    let start = std::time::Instant::now();
    let code = on.launch(on.function(c"spin"), 1, 0, &mut [(&raw mut duration).cast()]);
    run.answer("launch of spin", code);
    call!(run, core, hipStreamSynchronize(on.stream));
    run.check("a delay is waited for", start.elapsed().as_micros() > 1000);
    call!(run, core, hipHostFree(word.cast()));
}
