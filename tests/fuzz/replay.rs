//! Runs fuzz targets on their corpus and on mutations of it, with a stable compiler; tests of several crates include this file.

use std::fs;
use std::path::Path;

pub(crate) const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fuzz/corpus");
const MUTATIONS: u64 = 60;

/// Changes a few bytes, cuts, repeats or mixes in a piece of another file.
fn mutate(seed: u64, file: &[u8], other: &[u8]) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below.max(1) as u64) as usize
    };
    let mut bytes = file.to_vec();
    for _ in 0..=random(4) {
        let at = random(bytes.len());
        match random(6) {
            0 => bytes.truncate(at),
            1 if !bytes.is_empty() => bytes[at] ^= 1 << random(8),
            2 if !bytes.is_empty() => bytes[at] = [0, 0x7f, 0x80, 0xff, b'-', b'9'][random(6)],
            3 => {
                let end = (at + random(64)).min(bytes.len());
                let piece = bytes[at.min(end)..end].to_vec();
                bytes.splice(at..at, piece);
            }
            4 => {
                let from = random(other.len());
                let piece = &other[from..(from + random(128)).min(other.len())];
                bytes.splice(at..at, piece.iter().copied());
            }
            _ => drop(bytes.drain(at..(at + random(16)).min(bytes.len()))),
        }
    }
    bytes
}

pub(crate) fn run(name: &str, target: fn(&[u8])) {
    let folder = Path::new(CORPUS).join(name);
    let mut paths: Vec<_> =
        fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let files: Vec<_> = paths.iter().map(|path| fs::read(path).unwrap()).collect();
    assert!(!files.is_empty(), "{name} has no corpus");
    for (index, file) in files.iter().enumerate() {
        target(file);
        let other = &files[(index + 1) % files.len()];
        for seed in 0..MUTATIONS {
            target(&mutate(seed + index as u64 * MUTATIONS, file, other));
        }
    }
}
