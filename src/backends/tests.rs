//! Names, and what is always here.
use super::*;

#[test]
fn every_name_reads_back() {
    for kind in BackendKind::ALL {
        assert_eq!(kind.name().parse(), Ok(kind));
    }
    let unknown = "abacus".parse::<BackendKind>().map_err(|error| error.kind());
    assert_eq!(unknown, Err(ErrorKind::Unsupported));
}

#[test]
fn host_memory_is_always_here_and_alone() {
    let host = open(BackendKind::Host, 0).expect("always there");
    assert_eq!(host.caps().device.backend, "host");
    let second = open(BackendKind::Host, 1).err().map(|error| error.kind());
    assert_eq!(second, Some(ErrorKind::Unsupported));
    open_best().expect("there is at least host memory");
}

#[test]
fn every_backend_is_looked_for() {
    let found = devices();
    for kind in BackendKind::ALL {
        let first = found.iter().find(|found| found.backend == kind).expect("looked for");
        assert_eq!(first.ordinal, 0);
        if !kind.is_built_in() {
            assert!(first.device.is_err());
        }
    }
}

#[test]
fn the_processor_in_disguise_is_not_the_best_device() {
    assert!(is_software("llvmpipe (LLVM 15.0.6, 256 bits)"));
    assert!(is_software("SwiftShader Device"));
    assert!(!is_software("NVIDIA H200"));
}
