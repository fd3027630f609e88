//! Ten planted bugs of kernels inside one block of a manager, each under `compute-sanitizer`, which sees them because it is
//! told of the spans; and the same kernel without a bug, about which it must be silent.
//!
//! `planted` starts the tool once for each, and ends with an error when one was not reported; `planted NUMBER` is one of
//! them. Needs a device, the run-time compiler, and the tool on the search path.
#![expect(unsafe_code, reason = "launches kernels that do wrong on purpose")]
use core::error::Error;
use omniheap_core::{Backend, Manager, ManagerConfig, Request, TimelineId};
use omniheap_cuda::{Argument, Cuda, Launch, Nvtx};
use std::{
    process::{Command, ExitCode},
    sync::Arc,
};

const MAIN: TimelineId = TimelineId::MAIN;
/// Exit code of the tool when it reports something.
const REPORTED: i32 = 86;
/// Bytes of each allocation: no multiple of what spans are rounded to, so that there is a gap behind each.
const SIZE: u64 = 1000;

const SOURCE: &str = r#"
extern "C" {
__global__ void put(unsigned char* to, long long at) { to[at] = 1; }
__global__ void get(unsigned char* to, long long at) { to[0] = to[at]; }
__global__ void get_wide(unsigned char* to, long long at) { to[0] = (unsigned char)((const uint4*)(to + at))->w; }
__global__ void add(unsigned char* to, long long at) { atomicAdd((unsigned int*)(to + at), 1u); }
__global__ void fill(unsigned char* to, long long count) { if (threadIdx.x < count) to[threadIdx.x] = 2; }
}
"#;

/// The allocation that a kernel gets: a live one, or one that was just freed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    Live,
    Freed,
}

/// The planted bugs: description, kernel, argument, and the allocation it gets.
const BUGS: [(&str, &str, i64, Target); 11] = [
    ("no bug", "fill", 1000, Target::Live),
    ("a write one byte behind the end", "put", 1000, Target::Live),
    ("a write well behind the end, into the gap", "put", 1020, Target::Live),
    ("a write before the start", "put", -20, Target::Live),
    ("a read one byte behind the end", "get", 1000, Target::Live),
    ("a read before the start", "get", -1, Target::Live),
    ("a wide read across the end", "get_wide", 992, Target::Live),
    ("an atomic behind the end", "add", 1004, Target::Live),
    ("a loop with the rounded size", "fill", 1024, Target::Live),
    ("a write after the free", "put", 0, Target::Freed),
    ("a read after the free", "get", 500, Target::Freed),
];

/// Runs one kernel over the middle one of three neighbours, with the tool told of all of them.
fn plant(number: usize) -> Result<(), Box<dyn Error>> {
    let &(what, kernel, at, target) = BUGS.get(number).ok_or("there are eleven")?;
    println!("{number}: {what}");
    let cuda = Cuda::open(0)?;
    let absent = "no tool listens: start this under compute-sanitizer --nvtx yes";
    let nvtx = Nvtx::attach(&cuda).ok_or(absent)?;
    let config = ManagerConfig::default().plain().observed(Arc::new(nvtx));
    let manager = Manager::with_config(cuda, config);
    let cuda = manager.backend();
    let kernel = cuda.compile(SOURCE)?.kernel(kernel)?;
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(manager.allocate(&Request::new(SIZE).on(MAIN))?);
    }
    let address = held[1].binding().address().ok_or("every block has one here")?;
    if target == Target::Freed {
        held.remove(1).free();
    }
    let arguments = [Argument::U64(address), Argument::I64(at)];
    // SAFETY: what the kernel touches lies in the block, whatever the tool says of it; threads beyond the first write
    // only there too.
    unsafe { cuda.launch(MAIN, &kernel, Launch::linear(1, 1024), &arguments) }?;
    // The tool ends a kernel that it has caught, and the device is lost to this process.
    println!("{number}: {:?}", cuda.wait_idle());
    Ok(())
}

/// Returns the tool's report of a bug.
fn report(number: usize) -> Result<Option<String>, Box<dyn Error>> {
    let this = std::env::current_exe()?;
    let exit = REPORTED.to_string();
    let options = ["--tool", "memcheck", "--nvtx", "yes", "--error-exitcode", &exit];
    let mut command = Command::new("compute-sanitizer");
    let output = command.args(options).arg(this).arg(number.to_string()).output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    match output.status.code() {
        Some(0) => Ok(None),
        Some(REPORTED) => {
            let is_found = |line: &&str| line.starts_with("========= ") && line.len() > 30;
            let access = said.lines().find(|line| line.contains("Invalid __global__"));
            let first = access.or_else(|| said.lines().find(is_found));
            Ok(Some(first.unwrap_or("nothing that can be read").to_owned()))
        }
        _ => {
            let complained = String::from_utf8_lossy(&output.stderr).into_owned();
            Err(format!("{}: {said}{complained}", output.status).into())
        }
    }
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    if let Some(number) = std::env::args().nth(1) {
        plant(number.parse()?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut wrong = 0;
    for (number, (what, ..)) in BUGS.iter().enumerate() {
        let reported = report(number)?;
        let text = reported.as_deref().unwrap_or("nothing reported");
        println!("{what:<45} {}", text.trim_start_matches("========= "));
        // A message about anything but an access is no report of a planted bug.
        let is_caught = text.contains("Invalid __global__");
        wrong += u32::from(is_caught != (number > 0) || (number == 0 && reported.is_some()));
    }
    println!("{wrong} of {} are wrong", BUGS.len());
    Ok(if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
