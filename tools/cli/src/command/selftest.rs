//! A minute's proof in a moment: bytes go to a device, across it, and back.
use omniheap::{AnyBackend, Manager, Request, TimelineId, transfer::CopyRegion};

const SIZE: usize = 1 << 20;

/// Writes, copies, reads back and compares; says what went wrong.
pub(super) fn run(device: &AnyBackend) -> Result<(), String> {
    if device.as_transfer().is_none() {
        return Err("the device moves no bytes".into());
    }
    let manager = Manager::new(AnyBackend::clone(device));
    let done = round_trip(&manager);
    manager.validate().map_err(|why| format!("accounts are wrong: {why}"))?;
    done
}

fn round_trip(manager: &Manager<AnyBackend>) -> Result<(), String> {
    let request = Request::new(SIZE as u64).dedicated();
    let from = manager.allocate(&request).map_err(|error| error.to_string())?;
    let to = manager.allocate(&request).map_err(|error| error.to_string())?;
    let written = pattern(SIZE, 7);
    let mut read = vec![0; SIZE];
    let copy = CopyRegion { from: &from, from_offset: 0, to: &to, to_offset: 0, size: SIZE as u64 };
    from.write(0, &written).map_err(|error| format!("write: {error}"))?;
    manager.copy(TimelineId::MAIN, &[copy]).map_err(|error| format!("copy: {error}"))?;
    to.read(0, &mut read).map_err(|error| format!("read: {error}"))?;
    if read == written { Ok(()) } else { Err("bytes came back changed".into()) }
}

/// Returns the bytes that say whose they are: no two seeds give the same.
pub(super) fn pattern(count: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let words = core::iter::repeat_with(next).flat_map(u64::to_le_bytes);
    words.take(count).collect()
}
