//! Memory that another process sees: this binary again, as that process.
#![expect(unsafe_code, reason = "takes descriptors over")]
use super::support::{
    DEVICE, MAIN, MIB, allocate, assert_same, at, free, kind, pattern, pinned, read, write,
};
use crate::own::{Argument, Block, Device, IpcHandle, Launch, is_amd};
use omniheap_core::{
    Backend, ErrorKind, Export, Exported, HeapId, Manager, ManagerConfig, Request, Timelines,
    Transfer,
};
use std::{
    os::fd::AsFd,
    process::{Command, ExitCode, Stdio},
};

cases! {
    Compiler: a_lost_device_says_so_and_lets_go;
    Export: another_process_sees_exported_bytes;
    Nothing: another_process_sees_bytes_by_handle, wrong_handles_are_refused;
}

/// Job of the other process: `lost`; `fd SIZE`, with the descriptor as its standard input; or `ipc SIZE HANDLE`.
const JOB: &str = "OMNIHEAP_OTHER_PROCESS";
const LENGTH: usize = 3 << 20;

/// Does the other process's part, where this is it.
pub(crate) fn other() -> Option<ExitCode> {
    let job = std::env::var(JOB).ok()?;
    let mut words = job.split(' ');
    let device = Device::open(0).expect("the first process has it");
    let (how, size) = (words.next(), words.next().and_then(|size| size.parse().ok()));
    if how == Some("lost") {
        lose(device);
        return Some(ExitCode::SUCCESS);
    }
    let size = size.expect("the first process says how much");
    let block = match how {
        Some("fd") => {
            // Another number than zero, which as a pointer is none.
            let input = std::io::stdin().as_fd().try_clone_to_owned().expect("one more descriptor");
            let exported = Exported { fd: input, size, uuid: None };
            device.import(DEVICE, &exported).expect("memory of the first process")
        }
        _ => {
            let bytes = words.next().and_then(parse).expect("the first process gave a handle");
            let handle = IpcHandle { bytes, size, uuid: None };
            for size in [size + 1, 1 << 40, u64::MAX - 0xFF, u64::MAX] {
                let refused = device.open_ipc(DEVICE, &IpcHandle { size, ..handle });
                assert_eq!(kind(refused), Some(ErrorKind::ExceedsLimit), "{size} bytes");
            }
            device.open_ipc(DEVICE, &handle).expect("memory of the first process")
        }
    };
    assert_same(&read(&device, &block, 0, LENGTH), &pattern(LENGTH, 11), "in the other process");
    write(&device, &block, 7, b"seen");
    free(&device, block);
    Some(ExitCode::SUCCESS)
}

fn parse(text: &str) -> Option<[u8; 64]> {
    let digits = |at| text.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    let bytes: Option<Vec<u8>> = (0..128).step_by(2).map(digits).collect();
    bytes?.try_into().ok()
}

/// Loses the device to a kernel that writes where nothing is, and uses it all the same.
fn lose(device: Device) {
    // By blocks: a driver makes and maps pages without the context that is lost.
    let manager = Manager::with_config(device, ManagerConfig::default().plain());
    let held = manager.allocate(&Request::new(MIB).on(MAIN)).expect("the device works");
    let device = manager.backend();
    let block = allocate(device, DEVICE, MIB);
    let source = "extern \"C\" __global__ void stray(unsigned int* to) { *to = 1; }";
    let kernel = device.compile(source).expect("fine").kernel("stray").expect("it is there");
    let nowhere = [Argument::U64(64)];
    // SAFETY: this process does nothing else, and what it loses is what the case looks at.
    let launched = unsafe { device.launch(MAIN, &kernel, Launch::linear(1, 1), &nowhere) };
    let lost = Some(ErrorKind::DeviceLost);
    assert_eq!(kind(launched.and_then(|()| device.wait_idle())), lost);
    assert_eq!(kind(device.wait_idle()), lost, "and it stays so");
    assert_eq!(kind(device.allocate(DEVICE, MIB)), lost);
    assert_eq!(kind(device.mark(MAIN)), lost);
    assert_eq!(kind(device.write(MAIN, at(&block, 0), &[1; 64])), lost);
    let refused = manager.allocate(&Request::new(1 << 30)).expect_err("nothing is left");
    assert_eq!(refused.kind(), ErrorKind::DeviceLost);
    // Everything is let go of, in an order that no working device would ask for.
    drop(block);
    drop(manager);
    drop(held);
    drop(kernel);
}

/// Runs the other process; returns whether it could be started.
fn start(job: &str, input: Stdio) -> bool {
    let this = std::env::current_exe().expect("the test knows where it is");
    if this.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ld-")) {
        eprintln!(
            "\n*** NOT TESTED: a second process over AMD's runtimes, which a loader of their own starts\n"
        );
        return false;
    }
    let output = Command::new(this).env(JOB, job).stdin(input).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    true
}

fn a_lost_device_says_so_and_lets_go(_: &Device) {
    start("lost", Stdio::null());
}

/// Passes a block with the pattern to the other process, and checks what it wrote.
fn show(device: &Device, block: &Block, job: &str, input: Stdio) {
    if start(job, input) {
        assert_eq!(read(device, block, 7, 4), b"seen", "the other process wrote here");
    }
}

fn another_process_sees_exported_bytes(device: &Device) {
    let block = device.allocate_exportable(DEVICE, LENGTH as u64).expect("small");
    write(device, &block, 0, &pattern(LENGTH, 11));
    let exported = device.export(&block).expect("exportable");
    show(device, &block, &format!("fd {}", exported.size), exported.fd.into());
    free(device, block);
}

fn another_process_sees_bytes_by_handle(device: &Device) {
    let block = allocate(device, DEVICE, 4 * MIB);
    write(device, &block, 0, &pattern(LENGTH, 11));
    let handle = match device.ipc_handle(&block) {
        Ok(handle) => handle,
        // The stand-in below AMD's runtimes has no memory that leaves by handle.
        Err(error) if is_amd(device) => {
            eprintln!("\n*** NOT TESTED: handles of memory: {error}\n");
            return free(device, block);
        }
        Err(error) => panic!("plain memory: {error}"),
    };
    assert_eq!(handle.size, 4 * MIB);
    let text: String = handle.bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    show(device, &block, &format!("ipc {} {text}", handle.size), Stdio::null());
    free(device, block);
}

fn wrong_handles_are_refused(device: &Device) {
    let block = allocate(device, pinned(device), MIB);
    assert_eq!(kind(device.ipc_handle(&block)), Some(ErrorKind::Unsupported), "not device memory");
    free(device, block);
    let handle = IpcHandle { bytes: [0x5A; 64], size: MIB, uuid: None };
    assert!(device.open_ipc(DEVICE, &handle).is_err(), "no process made it");
    let empty = IpcHandle { size: 0, ..handle };
    assert_eq!(kind(device.open_ipc(DEVICE, &empty)), Some(ErrorKind::ZeroSize));
    for size in [u64::MAX, u64::MAX - 0xFF, 1 << 63] {
        let endless = IpcHandle { size, ..handle };
        assert!(device.open_ipc(DEVICE, &endless).is_err(), "{size} bytes");
    }
    let elsewhere = IpcHandle { uuid: Some([7; 16]), ..handle };
    assert_eq!(kind(device.open_ipc(DEVICE, &elsewhere)), Some(ErrorKind::Foreign));
    assert_eq!(kind(device.open_ipc(HeapId(1), &handle)), Some(ErrorKind::Unsupported));
    assert_eq!(kind(device.open_ipc(HeapId(99), &handle)), Some(ErrorKind::NoSuchHeap));
}
