//! Weights loaded on every backend that is here, and read back to the byte.
//!
//! A backend without a device is ignored, unless `OMNIHEAP_REQUIRE` lists it.
use libtest_mimic::{Arguments, Failed, Trial};
use omniheap::weights::{Load, LoadWeights as _, WeightsFile};
use omniheap::{BackendKind, Manager, open};
use std::env;
use std::fs;
use std::path::PathBuf;

/// Names and bytes of the tensors: none, fewer than any device copies, odd ones, and more than a piece that is read at once.
const TENSORS: [(&str, usize); 6] = [
    ("none", 0),
    ("few", 3),
    ("page", 4096),
    ("odd", 70_001),
    ("large", (9 << 20) + 7),
    ("last", 1),
];

fn main() {
    let mut trials = Vec::new();
    for backend in BackendKind::ALL {
        let listed = env::var("OMNIHEAP_REQUIRE").unwrap_or_default();
        let is_required = listed.split(',').any(|word| word.trim() == backend.name());
        let is_here = is_required || open(backend, 0).is_ok();
        let trial = Trial::test(format!("[{backend}] weights"), move || check(backend));
        trials.push(trial.with_ignored_flag(!is_here));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// A file that is removed when it is dropped.
struct Written(PathBuf);

impl Drop for Written {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Bytes of a tensor: no two tensors begin alike, and no run of bytes repeats early.
fn bytes_of(name: &str, size: usize) -> Vec<u8> {
    let mut state = name.bytes().fold(1_u64, |state, byte| state * 251 + u64::from(byte));
    let step = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state.to_be_bytes()[0]
    };
    (0..size).map(step).collect()
}

/// A safetensors file of all tensors, one after the other.
fn write(backend: BackendKind) -> Result<Written, Failed> {
    let (mut entries, mut data) = (Vec::new(), Vec::new());
    for (name, size) in TENSORS {
        let (begin, end) = (data.len(), data.len() + size);
        entries.push(format!(
            r#""{name}":{{"dtype":"U8","shape":[{size}],"data_offsets":[{begin},{end}]}}"#
        ));
        data.extend(bytes_of(name, size));
    }
    let header = format!("{{{}}}", entries.join(","));
    let name = format!("omniheap-weights-{}-{backend}.safetensors", std::process::id());
    let written = Written(env::temp_dir().join(name));
    let length = (header.len() as u64).to_le_bytes();
    fs::write(&written.0, [&length, header.as_bytes(), &data].concat())?;
    Ok(written)
}

fn check(backend: BackendKind) -> Result<(), Failed> {
    let written = write(backend)?;
    let manager = Manager::new(open(backend, 0)?);
    let file = WeightsFile::open(&[&written.0])?;
    let loaded = manager.load_weights(&file, &Load::new())?;
    for (name, size) in TENSORS {
        let tensor = loaded.get(name).ok_or("a tensor is not there")?;
        let Some(allocation) = tensor.allocation() else {
            assert_eq!(size, 0, "{name} has no memory");
            continue;
        };
        // Some devices copy whole words alone.
        let mut got = vec![0; size.next_multiple_of(256)];
        allocation.read(tensor.span().offset, &mut got)?;
        assert!(got[..size] == bytes_of(name, size), "{name} has other bytes");
    }
    drop(loaded);
    assert_eq!(manager.report().quarantined_bytes, 0, "nothing is lost");
    Ok(())
}
