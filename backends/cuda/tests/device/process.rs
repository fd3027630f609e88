//! Memory that another process sees: this binary again, as that process.
#![expect(unsafe_code, reason = "takes descriptors over")]
use crate::support::{
    DEVICE, MIB, allocate, assert_same, free, kind, pattern, pinned, read, write,
};
use omniheap_core::{ErrorKind, Export, Exported, HeapId};
use omniheap_cuda::{Block, Cuda, IpcHandle};
use std::{
    os::fd::{AsFd, FromRawFd, IntoRawFd, OwnedFd},
    process::{Command, ExitCode, Stdio},
};

crate::cases! {
    Export: another_process_sees_exported_bytes;
    Nothing: another_process_sees_bytes_by_handle, wrong_handles_are_refused;
}

/// What the other process is to do: `fd SIZE`, with the descriptor as its standard input, or `ipc SIZE HANDLE`.
const JOB: &str = "OMNIHEAP_OTHER_PROCESS";
const LENGTH: usize = 3 << 20;

/// Does the other process's part, where this is it.
pub(crate) fn other() -> Option<ExitCode> {
    let job = std::env::var(JOB).ok()?;
    let mut words = job.split(' ');
    let cuda = Cuda::open(0).expect("the first process has it");
    let (how, size) = (words.next(), words.next().and_then(|size| size.parse().ok()));
    let size = size.expect("the first process says how much");
    let block = match how {
        Some("fd") => {
            // Another number than zero, which as a pointer is none.
            let input = std::io::stdin().as_fd().try_clone_to_owned().expect("one more descriptor");
            let exported = Exported { fd: input.into_raw_fd(), size, uuid: None };
            cuda.import(DEVICE, &exported).expect("memory of the first process")
        }
        _ => {
            let bytes = words.next().and_then(parse).expect("the first process gave a handle");
            let handle = IpcHandle { bytes, size, uuid: None };
            cuda.open_ipc(DEVICE, &handle).expect("memory of the first process")
        }
    };
    assert_same(&read(&cuda, &block, 0, LENGTH), &pattern(LENGTH, 11), "in the other process");
    write(&cuda, &block, 7, b"seen");
    free(&cuda, block);
    Some(ExitCode::SUCCESS)
}

fn parse(text: &str) -> Option<[u8; 64]> {
    let digits = |at| text.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    let bytes: Option<Vec<u8>> = (0..128).step_by(2).map(digits).collect();
    bytes?.try_into().ok()
}

/// Lets the other process look at a block that holds the pattern, and checks what it left there.
fn show(cuda: &Cuda, block: &Block, job: String, input: Stdio) {
    let this = std::env::current_exe().expect("the test knows where it is");
    let output = Command::new(this).env(JOB, job).stdin(input).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    assert_eq!(read(cuda, block, 7, 4), b"seen", "the other process wrote here");
}

fn another_process_sees_exported_bytes(cuda: &Cuda) {
    let block = cuda.allocate_exportable(DEVICE, LENGTH as u64).expect("small");
    write(cuda, &block, 0, &pattern(LENGTH, 11));
    let exported = cuda.export(&block).expect("exportable");
    // SAFETY: `export` made the descriptor, and nothing else closes it.
    let descriptor = unsafe { OwnedFd::from_raw_fd(exported.fd) };
    show(cuda, &block, format!("fd {}", exported.size), descriptor.into());
    free(cuda, block);
}

fn another_process_sees_bytes_by_handle(cuda: &Cuda) {
    let block = allocate(cuda, DEVICE, 4 * MIB);
    write(cuda, &block, 0, &pattern(LENGTH, 11));
    let handle = cuda.ipc_handle(&block).expect("plain memory");
    assert_eq!(handle.size, 4 * MIB);
    let text: String = handle.bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    show(cuda, &block, format!("ipc {} {text}", handle.size), Stdio::null());
    free(cuda, block);
}

fn wrong_handles_are_refused(cuda: &Cuda) {
    let block = allocate(cuda, pinned(cuda), MIB);
    assert_eq!(kind(cuda.ipc_handle(&block)), Some(ErrorKind::Unsupported), "not device memory");
    free(cuda, block);
    let handle = IpcHandle { bytes: [0x5A; 64], size: MIB, uuid: None };
    assert!(cuda.open_ipc(DEVICE, &handle).is_err(), "no process made it");
    let empty = IpcHandle { size: 0, ..handle };
    assert_eq!(kind(cuda.open_ipc(DEVICE, &empty)), Some(ErrorKind::ZeroSize));
    let elsewhere = IpcHandle { uuid: Some([7; 16]), ..handle };
    assert_eq!(kind(cuda.open_ipc(DEVICE, &elsewhere)), Some(ErrorKind::Foreign));
    assert_eq!(kind(cuda.open_ipc(HeapId(1), &handle)), Some(ErrorKind::Unsupported));
    assert_eq!(kind(cuda.open_ipc(HeapId(99), &handle)), Some(ErrorKind::NoSuchHeap));
}
