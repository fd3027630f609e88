//! The fuzz targets on files of every format and on mutations of them: fuzzing that every test run does.

#[path = "../../../../tests/fuzz/src/weights.rs"]
#[expect(unreachable_pub, reason = "the fuzz package makes targets of these functions")]
mod targets;

use crate::write::{self, Given};
use omniheap_weights::Dtype;
use zip::CompressionMethod;

const MUTATIONS: u64 = 3000;

fn mutate(seed: u64, file: &[u8]) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % below.max(1) as u64).unwrap()
    };
    let mut bytes = file.to_vec();
    for _ in 0..=random(4) {
        let at = random(bytes.len());
        match random(5) {
            0 => bytes.truncate(at),
            1 if !bytes.is_empty() => bytes[at] ^= 1 << random(8),
            2 if !bytes.is_empty() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff, b'9'][random(6)],
            3 => {
                let end = (at + random(64)).min(bytes.len());
                let piece = bytes[at.min(end)..end].to_vec();
                bytes.splice(at..at, piece);
            }
            _ => drop(bytes.drain(at..(at + random(16)).min(bytes.len()))),
        }
    }
    bytes
}

fn run(files: &[Vec<u8>], target: fn(&[u8])) {
    for file in files {
        target(file);
        (0..MUTATIONS).for_each(|seed| target(&mutate(seed, file)));
    }
}

fn given() -> Vec<Given> {
    vec![Given::new("a.0.w", Dtype::F32, &[2, 4], 1), Given::new("b", Dtype::F16, &[32], 2)]
}

#[test]
fn header() {
    let (given, quantised) = (given(), [Given::new("q", Dtype::Q4K, &[2, 256], 3)]);
    let pairs = [write::pair("general.name", 8, b"\x01\0\0\0\0\0\0\0x")];
    let pickle = write::state_dict(&given).0;
    let files = [
        write::safetensors(&given),
        write::gguf(3, 32, &pairs, &quantised),
        write::torch(&pickle, &given, CompressionMethod::Stored),
    ];
    run(&files, targets::header);
}

#[test]
fn pickle() {
    run(&[write::state_dict(&given()[..1]).0], targets::pickle);
}
